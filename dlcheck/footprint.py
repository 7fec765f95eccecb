"""What a foreseen step takes of a device, and the batch that fits: tensors, and what none shows."""

from __future__ import annotations

from dlcheck.observation import Budget

# The CUDA context and the libraries' code.
CONTEXT = 512 << 20
# What the allocator loses to fragments, and cuDNN and cuBLAS take as workspaces.
MARGIN = 0.10
# Held whatever the batch.
KEPT = ("parameters", "buffers", "optimizer state")


def needed(budget: Budget) -> int:
    """Return the bytes that the step takes of a device, margins included."""
    return round(budget.peak * (1 + MARGIN)) + CONTEXT


def largest_batch(budget: Budget, room: int) -> int | None:
    """Return the largest batch that fits, margins included; None where the batch is no matter."""
    if budget.per_sample <= 0:
        return None
    tensors = (room - CONTEXT) / (1 + MARGIN)
    kept = sum(size for kind, size in budget.parts().items() if kind in KEPT)
    # The update holds a gradient for each parameter beside what is kept.
    if tensors < kept + budget.parameters:
        return 0
    return max(int((tensors - budget.fixed) // budget.per_sample), 0)
