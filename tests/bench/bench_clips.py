"""What the tests of a bench measure on."""

from gpupipe.bench.clip import Recipe

SMALL = Recipe("libx264", 192, 108, 400_000, options={"preset": "ultrafast", "sc_threshold": "0"})
STAGES = [{"warp": {"rotate": 1.5}}, {"crop": {"width": 160, "height": 96}}]
MJPEG = {"video": {"codec": "mjpeg", "quality": 95}}
