/* The cost models of pagedkv/preemption.py, in the same order of operations, so that both give the same floats. */
(() => {
  "use strict";
  /** Both costs of a setting: recompute {perToken, perPair} and swap {fixed, perToken, perBlock, blockSize}, in seconds. */
  const costs = ({models, flops}, setting) => {
    const model = models[setting.model], rate = flops * (setting.efficiency_percent / 100);
    return {
      recompute: {perToken: model.linear / rate, perPair: setting.attention ? model.pair / rate : 0},
      swap: {fixed: setting.setup_ms / 1e3, perToken: 2 * model.kv_bytes / (setting.gigabytes_per_second * 1e9),
        perBlock: setting.per_block_us / 1e6, blockSize: setting.block_size},
    };
  };
  const recompute = ({perToken, perPair}, tokens) => perToken * tokens + perPair * (tokens * (tokens + 1) / 2);
  const swap = ({fixed, perToken, perBlock, blockSize}, tokens) => fixed + perToken * tokens + perBlock * Math.ceil(tokens / blockSize);
  /** Seconds per token of a swap, the overhead of a full block spread over its tokens. */
  const slope = cost => cost.perToken + cost.perBlock / cost.blockSize;

  /** Length from which on swap is the cheaper one, in tokens; null when recompute always is. */
  const crossover = (again, moved) => {
    const half = again.perPair / 2, gain = again.perToken + half - slope(moved);
    if (!half) return gain > 0 ? moved.fixed / gain : null;
    const root = Math.sqrt(gain * gain + 4 * half * moved.fixed);
    return gain > 0 ? 2 * moved.fixed / (gain + root) : (root - gain) / (2 * half);
  };

  /** Host link in GB/s above which there is a crossover, attention left out; null if no link is fast enough. */
  const slowestLink = ({models, flops}, setting) => {
    const gain = models[setting.model].linear / (flops * (setting.efficiency_percent / 100)) - setting.per_block_us / 1e6 / setting.block_size;
    return gain > 0 ? 2 * models[setting.model].kv_bytes / gain / 1e9 : null;
  };

  globalThis.pagedkv.preemption = {costs, recompute, swap, slope, crossover, slowestLink};
})();
