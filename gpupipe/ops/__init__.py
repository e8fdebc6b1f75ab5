"""Pure tensor arithmetic; a Triton kernel sits beside its torch reference."""
