"""Networks whose weights are fetched, checked and read as data; nothing that came with them is ever run."""
