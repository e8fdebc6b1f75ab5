"""How a network runs: engines behind one Protocol, the cache of what they built, and the choice between them."""
