"""One render on many machines: by Ray, or as a template of jobs for a studio's own queue."""
