"""Per-token losses. Shapes: B = rows, K = the last K tokens of the rows; log-probs are in nats."""

import torch
from torch import Tensor

# e^20 is where a ratio has long been clipped, and e^90 would overflow.
MAX_LOG_RATIO = 20.0


def clipped_policy_loss(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, clip_eps: float) -> Tensor:
    """PPO's clipped objective, negated (arXiv:2510.08529, eq. 11). All (B, K) -> (B, K)."""
    ratio = (log_probs - old_log_probs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - clip_eps, 1 + clip_eps) * advantages)


def kl_estimate(log_probs: Tensor, reference_log_probs: Tensor, estimator: str) -> Tensor:
    """Schulman's estimators of KL(pi, pi_ref) at tokens sampled from pi (joschu.net/blog/kl-approx.html).

    All (B, K) -> (B, K). For p = 0.5, p_ref = 0.25: k1 0.6931, k2 0.2402, k3 0.1931.
    """
    log_ratio = log_probs - reference_log_probs
    if estimator == "k1":
        return log_ratio
    if estimator == "k2":
        return log_ratio.square() / 2
    if estimator == "k3":
        return torch.exp((-log_ratio).clamp(max=MAX_LOG_RATIO)) - 1 + log_ratio
    raise ValueError(f"KL estimator {estimator!r}: expected k1, k2 or k3")
