"""What the bytes of a weight mean (format, formats/), how to choose them (quantizers/), and the container file."""

if __name__ != "edgert.quant":
    raise ImportError(f"this package is edgert.quant: found it imported as {__name__!r}; import edgert.quant")
