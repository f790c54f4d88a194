"""Any Hugging Face causal model on the paged cache: a Transformers `Cache` over `PagedKVCache`.

    kv = kv_cache_for(model, num_blocks=256, block_size=16)
    with PagedCache(model.config, kv) as cache, torch.inference_mode():
        model.generate(**inputs, cache=cache)  # or model(**inputs, cache=cache)

(Transformers before 5.24 called the argument `past_key_values`; 5.24 still takes that name, with a warning.)

There are two depths, and the model's attention implementation decides which one runs:

* "sdpa", "eager" and every other: each layer writes the new K and V through the block tables and hands attention a
  contiguous copy of what the tables point at. This is right for every model and mask that `PagedCache` accepts,
  sliding windows included (all past tokens are kept). A padded token takes a slot like any other.
* "pagedkv", as in `model.set_attn_implementation("pagedkv")`: attention runs as `PagedKVCache.attend`, which is
  handed block tables and no copy. (Its reference implementation, in plain torch, gathers within; a kernel need not.)
  Left-padded tokens are not stored at all, so a batch of ragged prompts takes the blocks of its real tokens. Plain
  causal attention only: sliding windows, soft caps, sinks, dropout and other masks are refused.

Sequences are forked, never copied: beam search reorders the cache by fork and free, and `fork` continues one prefix
several times. `generate` expands a batch before its prefill, so its beams share nothing until the first reordering
and its samples never do; prefill once and `batch_repeat_interleave` to share the prompt from the start.

Importing this package registers "pagedkv" with Transformers. For inference only: K and V are stored without gradients.
"""

from __future__ import annotations

from pagedkv.errors import PagedKVError

OLDEST = (5, 24)  # the release up to which the cache interface changed: argument names, mask sizes, crop


class TransformersMissing(PagedKVError, ImportError):
    """Transformers is not installed, or is older than this package can work with."""


try:
    import transformers

    from pagedkv.huggingface.attention import register
    from pagedkv.huggingface.fitting import kv_cache_for
    from pagedkv.huggingface.paged_cache import ATTENTION, PagedCache
except ImportError as error:
    raise TransformersMissing(
        f"pagedkv.huggingface cannot import what it needs ({error}); "
        f"pip install --upgrade 'pagedkv[transformers]'"
    ) from error
if tuple(map(int, transformers.__version__.split(".")[:2])) < OLDEST:
    raise TransformersMissing(
        f"pagedkv.huggingface needs transformers {OLDEST[0]}.{OLDEST[1]} or newer, "
        f"not {transformers.__version__}; pip install --upgrade 'pagedkv[transformers]'"
    )

__all__ = ["ATTENTION", "PagedCache", "TransformersMissing", "kv_cache_for"]

register()
