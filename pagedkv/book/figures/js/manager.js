/* A port of pagedkv/blocks.py and pagedkv/tables.py, for figures in which the reader chooses the order of events.
   Random traces are replayed through both and compared after every operation: keep them in step. */
(() => {
  "use strict";
  class OutOfBlocks extends Error {
    constructor(needed, free) {
      super(`${needed} blocks needed, ${free} free; free a sequence or use a larger pool`);
      Object.assign(this, {name: "OutOfBlocks", needed, free});
    }
  }
  class NotAllocated extends Error {
    constructor(block) { super(`block ${block} is already free; it was freed twice or never allocated`); this.name = "NotAllocated"; }
  }
  class FreedTable extends Error {
    constructor() { super("this block table has been freed; make a new BlockTable for a new sequence"); this.name = "FreedTable"; }
  }

  class BlockPool {
    /** `freeList`: block ids, next to be handed out first; all blocks in order by default. */
    constructor(numBlocks, blockSize, freeList = Array.from({length: numBlocks}, (_, block) => block)) {
      this.numBlocks = numBlocks;
      this.blockSize = blockSize;
      this.stack = [...freeList].reverse();
      this.references = Array(numBlocks).fill(0);
    }
    get numFree() { return this.stack.length; }
    freeList() { return [...this.stack].reverse(); }
    allocate(count) {
      if (count > this.stack.length) throw new OutOfBlocks(count, this.stack.length);
      const blocks = Array.from({length: count}, () => this.stack.pop());
      blocks.forEach(block => { this.references[block] = 1; });
      return blocks;
    }
    share(blocks) {
      this.requireLive(blocks);
      blocks.forEach(block => { this.references[block] += 1; });
    }
    free(blocks) {
      this.requireLive(blocks);
      for (const block of blocks) if (--this.references[block] === 0) this.stack.push(block);
    }
    requireLive(blocks) {
      for (const block of blocks) if (!(this.references[block] > 0)) throw new NotAllocated(block);
      if (new Set(blocks).size !== blocks.length) throw new NotAllocated(blocks[0]);
    }
  }

  class BlockTable {
    constructor(pool, blocks = [], length = 0) {
      Object.assign(this, {pool, blocks: [...blocks], length, freed: false});
    }
    /** A table over blocks that are already taken out of `pool`'s free list: a state that Python computed. */
    static restore(pool, blocks, length) {
      blocks.forEach(block => { pool.references[block] += 1; });
      return new BlockTable(pool, blocks, length);
    }
    get slack() { return this.blocks.length * this.pool.blockSize - this.length; }
    mustCopy() { return this.slack > 0 && this.pool.references[this.blocks.at(-1)] > 1; }
    blocksToExtend(tokens) {
      if (!tokens) return 0;
      return Math.ceil((this.length + tokens) / this.pool.blockSize) - this.blocks.length + (this.mustCopy() ? 1 : 0);
    }
    append() { return this.extend(1); }
    /** Add tokens, all or nothing. Returns {source, destination} when a shared last block had to be copied. */
    extend(tokens) {
      if (this.freed) throw new FreedTable();
      let needed = this.blocksToExtend(tokens), copy = null;
      if (!tokens) return null;
      if (needed > this.pool.numFree) throw new OutOfBlocks(needed, this.pool.numFree);
      if (this.mustCopy()) {
        const source = this.blocks.at(-1), [destination] = this.pool.allocate(1);
        this.pool.free([source]);
        this.blocks[this.blocks.length - 1] = destination;
        copy = {source, destination};
        needed -= 1;
      }
      this.blocks.push(...this.pool.allocate(needed));
      this.length += tokens;
      return copy;
    }
    slot(position) {
      const size = this.pool.blockSize;
      return this.blocks[Math.floor(position / size)] * size + (position % size);
    }
    fork() {
      if (this.freed) throw new FreedTable();
      this.pool.share(this.blocks);
      return new BlockTable(this.pool, this.blocks, this.length);
    }
    free() {
      if (this.freed) throw new FreedTable();
      this.pool.free(this.blocks);
      Object.assign(this, {blocks: [], length: 0, freed: true});
    }
  }

  globalThis.pagedkv.manager = {BlockPool, BlockTable, OutOfBlocks, NotAllocated, FreedTable};
})();
