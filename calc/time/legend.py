"""Symbols of the derivations of times, and what they stand for."""

SHARES: dict[str, tuple[str, str]] = {
    "bandwidth": ("η_b", "share of the bandwidth: weights"),
    "bandwidth_quantized": ("η_bq", "share of the bandwidth: quantized weights"),
    "cache": ("η_c", "share of the bandwidth: cache and activations"),
    "matmul": ("η_m", "share of the peak: matrix products"),
    "matmul_quantized": ("η_mq", "share of the peak: products of quantized weights"),
    "experts_bandwidth": ("η_be", "share of the bandwidth: routed experts"),
    "experts_matmul": ("η_me", "share of the peak: routed experts"),
    "attention": ("η_a", "share of the peak: attention"),
    "layer_us": ("t_L", "µs of the host for a layer, decode"),
    "sparse_us": ("t_Le", "µs more for a layer with routed experts, decode"),
    "prefill_layer_us": ("t_Lp", "µs of the host for a layer, prefill"),
    "prefill_sparse_us": ("t_Lpe", "µs more for a layer with routed experts, prefill"),
    "request_ms": ("t_req", "ms of the host for a request"),
    "all_reduce_us": ("t_ar", "µs of a collective, whatever its size"),
    "link": ("η_l", "share of the link"),
    "inter_node_gb_s": ("l_net", "GB/s of a GPU to other nodes, one direction"),
    "experts": ("η_me", "share of the peak: routed experts"),
    "elementwise": ("e_k", "bytes that kernels between products move for an element of a layer's state"),
    "routed": ("e_r", "bytes that sorting tokens by their experts moves for an element of each copy of a token"),
    "overlap": ("η_o", "share of the exchange between replicas that hides behind compute"),
}
"""Of the efficiencies of serving and training by their fields."""
MACHINE: dict[str, tuple[str, str, str]] = {
    "peak": ("P", "FLOP/s of products", "FLOP/s"),
    "peak_quantized": ("P_q", "FLOP/s of products of quantized weights", "FLOP/s"),
    "peak_experts": ("P_e", "FLOP/s of routed experts", "FLOP/s"),
    "peak_attention": ("P_a", "FLOP/s of attention", "FLOP/s"),
    "bandwidth": ("b", "bytes/s of weights", "bytes/s"),
    "bandwidth_quantized": ("b_q", "bytes/s of quantized weights", "bytes/s"),
    "bandwidth_experts": ("b_e", "bytes/s of routed experts", "bytes/s"),
    "bandwidth_cache": ("b_c", "bytes/s of cache and activations", "bytes/s"),
    "layer": ("t_layer", "seconds of the host for a layer, decode", "s"),
    "sparse": ("t_sparse", "seconds more where experts are routed, decode", "s"),
    "prefill_layer": ("t_layer_p", "seconds of the host for a layer, prefill", "s"),
    "prefill_sparse": ("t_sparse_p", "seconds more where experts are routed, prefill", "s"),
    "request": ("t_request", "seconds of the host for a request", "s"),
    "all_reduce": ("t_reduce", "seconds of a collective, whatever its size", "s"),
    "link": ("l", "bytes/s of what connects the GPUs, one direction", "bytes/s"),
}
"""Of `Machine` by its fields: symbol, meaning, unit."""
