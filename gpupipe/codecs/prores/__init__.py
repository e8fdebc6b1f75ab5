"""ProRes (SMPTE RDD 36:2015), encoded with torch on any device: `profile` for the plan, `encoder` for the run."""
