"""Model shapes: what one token costs in KV bytes and in floating-point operations."""

from __future__ import annotations

from dataclasses import dataclass

from pagedkv.errors import BadValue, require_count


@dataclass(frozen=True, slots=True)
class ModelGeometry:
    """The dimensions of a decoder-only transformer that its KV cache and its FLOPs depend on.

    Attributes:
        name: as its authors write it.
        layers, hidden, intermediate, vocabulary: the usual widths.
        query_heads, kv_heads, head_dim: attention; query_heads is a multiple of kv_heads (grouped-query attention).
        mlp_matrices: 3 for a gated MLP (SwiGLU), 2 for a plain one.
        tied_embeddings: whether the output projection is the embedding.
        positions: learned position embeddings, 0 for rotary models.
        bytes_per_element: of the cache and the weights; 2 for fp16 and bf16.
        source: where the numbers are from.
    """

    name: str
    layers: int
    hidden: int
    intermediate: int
    query_heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    mlp_matrices: int = 3
    tied_embeddings: bool = False
    positions: int = 0
    bytes_per_element: int = 2
    source: str = ""

    def __post_init__(self) -> None:
        """Refuse shapes that no model has."""
        for name in ("layers", "hidden", "intermediate", "query_heads", "kv_heads", "head_dim", "vocabulary"):
            require_count(name, getattr(self, name), 1)
        require_count("bytes_per_element", self.bytes_per_element, 1)
        if self.query_heads % self.kv_heads:
            raise BadValue(f"query_heads {self.query_heads} is not a multiple of kv_heads {self.kv_heads}")

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes that one token keeps resident: a K and a V vector per KV head and layer."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.bytes_per_element

    @property
    def parameters(self) -> int:
        """Weights of the projections, MLPs and embeddings; norms and biases (well under 0.1 %) are left out."""
        attention = self.hidden * self.head_dim * (2 * self.query_heads + 2 * self.kv_heads)
        mlp = self.mlp_matrices * self.hidden * self.intermediate
        embeddings = self.vocabulary * self.hidden * (1 if self.tied_embeddings else 2)
        return self.layers * (attention + mlp) + embeddings + self.positions * self.hidden

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights at `bytes_per_element`."""
        return self.parameters * self.bytes_per_element

    def linear_flops(self, tokens: int) -> int:
        """FLOPs of all matrix products with weights for `tokens` tokens: 2 per parameter and token."""
        return 2 * self.parameters * tokens

    def attention_flops(self, tokens: int) -> int:
        """FLOPs of causal self-attention over a prompt of `tokens` tokens, from nothing: QK^T and PV.

        Token i attends to i + 1 keys; each key costs 2 head_dim FLOPs for its score and 2 for its value, per query
        head and layer.
        """
        keys = tokens * (tokens + 1) // 2
        return 4 * self.layers * self.query_heads * self.head_dim * keys

    def slots_in(self, memory_bytes: float) -> int:
        """Tokens whose KV fits into `memory_bytes`."""
        return int(memory_bytes // self.kv_bytes_per_token)


LLAMA_3_1_8B = ModelGeometry(
    name="Llama 3.1 8B",
    layers=32,
    hidden=4096,
    intermediate=14336,
    query_heads=32,
    kv_heads=8,
    head_dim=128,
    vocabulary=128256,
    source="config.json of meta-llama/Llama-3.1-8B",
)
OPT_13B = ModelGeometry(
    name="OPT-13B",
    layers=40,
    hidden=5120,
    intermediate=20480,
    query_heads=40,
    kv_heads=40,
    head_dim=128,
    vocabulary=50272,
    mlp_matrices=2,
    tied_embeddings=True,
    positions=2050,
    source="config.json of facebook/opt-13b",
)
QWEN_2_5_7B = ModelGeometry(
    name="Qwen2.5-7B",
    layers=28,
    hidden=3584,
    intermediate=18944,
    query_heads=28,
    kv_heads=4,
    head_dim=128,
    vocabulary=152064,
    source="config.json of Qwen/Qwen2.5-7B",
)
PRESETS: dict[str, ModelGeometry] = {
    "llama-3.1-8b": LLAMA_3_1_8B,
    "opt-13b": OPT_13B,
    "qwen-2.5-7b": QWEN_2_5_7B,
}
