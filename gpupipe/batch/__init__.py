"""Many files by one config: what each output is called, what is done already, and several at once."""
