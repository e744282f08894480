"""Headers of GGUF and safetensors files with one broken rule each: name -> (content, a part of the message)."""

import struct

from .gguf_bytes import (
    ARRAY,
    BOOL,
    F64,
    STRING,
    TYPE_Q8_0,
    U8,
    U32,
    gguf,
    key_value,
    string,
    tensor,
)  # fmt: skip
from .safetensors_bytes import A, safetensors

BIG = 2**64 - 1
ONE_F32 = [tensor("a", (8,), 0, 0)]
GGUF: dict[str, tuple[bytes, str]] = {
    "no header": (b"GGUF", "version at byte 4: found 0 bytes, expected 4"),
    "half a header": (gguf()[:20], "number of key-values at byte 16"),
    "too many key-values": (gguf(num_key_values=BIG), "number of key-values at byte 16"),
    "more key-values than fit": (gguf(num_key_values=50), "expected at most"),
    "more than 65536 key-values": (gguf(num_key_values=65537, content=1 << 21), "expected at most 65536"),
    "too many tensors": (gguf(num_tensors=BIG), "number of tensors at byte 8"),
    "more tensors than fit": (gguf(num_tensors=40), "number of tensors at byte 8"),
    "key too long": (gguf([struct.pack("<Q", BIG) + b"k" * 40]), "key 0 at byte 24: found 18446744073709551615 bytes"),
    "key beyond the file": (gguf([struct.pack("<Q", 60000) + b"k" * 40]), "expected 60000"),
    "empty key": (gguf([key_value("", U8, b"\0")]), "expected a key that is not empty"),
    "key twice": (gguf([key_value("a", U8, b"\0")] * 2), "found 'a', expected a key that is not empty and occurs once"),
    "key no UTF-8": (gguf([key_value(b"\xff\xfe", U8, b"\0")]), "found no UTF-8"),
    "unknown value type": (gguf([key_value("a", 13, b"\0" * 8)]), "found type 13, expected a type from 0 to 12"),
    "bool of 2": (gguf([key_value("a", BOOL, b"\2")]), "a byte other than 0 and 1"),
    "string beyond the file": (gguf([key_value("a", STRING, struct.pack("<Q", 1000))]), "expected 1000"),
    "string over a megabyte": (gguf([key_value("a", STRING, struct.pack("<Q", (1 << 20) + 1))]), "at most 1048576"),
    "string of 2^64 - 1": (gguf([key_value("a", STRING, struct.pack("<Q", BIG))]), "at most 1048576"),
    "string no UTF-8": (gguf([key_value("a", STRING, string(b"\xc3\x28"))]), "found no UTF-8"),
    "array of arrays": (gguf([key_value("a", ARRAY, struct.pack("<IQ", ARRAY, 1))]), "found an array of arrays"),
    "array of unknown type": (gguf([key_value("a", ARRAY, struct.pack("<IQ", 99, 1))]), "found an array of type 99"),
    "array of 2^64 - 1": (
        gguf([key_value("a", ARRAY, struct.pack("<IQ", U8, BIG))]),
        "expected at most 4194304 in all arrays",
    ),
    "arrays of 2^22 in all": (
        gguf([key_value(k, ARRAY, struct.pack("<IQ", U8, 1 << 21) + bytes(1 << 21)) for k in "abc"]),
        "value of 'c' at byte 4194395: found 2097152 elements",
    ),
    "array beyond the file": (gguf([key_value("a", ARRAY, struct.pack("<IQ", F64, 1000))]), "expected 8000"),
    "strings beyond the file": (gguf([key_value("a", ARRAY, struct.pack("<IQ", STRING, 1000))]), "expected 8000"),
    "string of an array too long": (
        gguf([key_value("a", ARRAY, struct.pack("<IQQ", STRING, 1, BIG))]),
        "element 0 at byte 49: found 18446744073709551615 bytes",
    ),
    "string of an array no UTF-8": (
        gguf([key_value("a", ARRAY, struct.pack("<IQ", STRING, 2) + string("a") + string(b"\xff"))]),
        "element 1 at byte",
    ),
    "bool of an array of 2": (gguf([key_value("a", ARRAY, struct.pack("<IQ3B", BOOL, 3, 0, 1, 2))]), "other than 0"),
    "alignment 0": (gguf([key_value("general.alignment", U32, struct.pack("<I", 0))]), "expected a power of two"),
    "alignment 48": (gguf([key_value("general.alignment", U32, struct.pack("<I", 48))]), "expected a power of two"),
    "alignment 128 KiB": (
        gguf([key_value("general.alignment", U32, struct.pack("<I", 1 << 17))]),
        "expected a power of two up to 65536",
    ),
    "alignment a string": (gguf([key_value("general.alignment", STRING, string("32"))]), "expected a power of two"),
    "alignment true": (gguf([key_value("general.alignment", BOOL, b"\1")]), "expected a power of two"),
    "name empty": (gguf(tensors=[tensor("", (8,), 0, 0)], content=32), "expected a name"),
    "name too long": (gguf(tensors=[tensor("n" * 256, (8,), 0, 0)], content=32), "found 256 bytes"),
    "name twice": (gguf(tensors=ONE_F32 * 2, content=64), "found 'a' again"),
    "no dimensions": (gguf(tensors=[tensor("a", (), 0, 0)], content=32), "found 0, expected 1 to 4"),
    "five dimensions": (gguf(tensors=[tensor("a", (1,) * 5, 0, 0)], content=32), "found 5, expected 1 to 4"),
    "2^32 - 1 dimensions": (
        gguf(tensors=[string("a") + struct.pack("<I", 2**32 - 1) + b"\0" * 40]),
        "expected 1 to 4",
    ),
    "a dimension of 0": (gguf(tensors=[tensor("a", (8, 0), 0, 0)], content=32), "expected dimensions above 0"),
    "half a block": (gguf(tensors=[tensor("a", (33,), TYPE_Q8_0, 0)], content=68), "the first a multiple of 32"),
    "elements that wrap to 0": (gguf(tensors=[tensor("a", (2**32, 2**32), 0, 0)], content=64), "below 2^31"),
    "elements that wrap to 8": (
        gguf(tensors=[tensor("a", (2**61 + 1, 8), 0, 0)], content=64),
        "expected dimensions below 2^31",
    ),
    "bytes that wrap": (
        gguf(tensors=[tensor("a", (2**30, 2**30, 2**4), 0, 0)], content=64),
        "expected dimensions below 2^31 and a size below 2^62",
    ),
    "offset not aligned": (gguf(tensors=[tensor("a", (8,), 0, 8)], content=64), "expected a multiple of 32"),
    "offset beyond the file": (gguf(tensors=[tensor("a", (8,), 0, 2**63)], content=64), "the download did not finish"),
    "offset that wraps": (gguf(tensors=[tensor("a", (8,), 0, 2**64 - 32)], content=64), "the download did not finish"),
    "overlap": (
        gguf(tensors=[tensor("a", (16,), 0, 0), tensor("b", (8,), 0, 32)], content=96),
        "found byte 32 of the data, inside 'a'",
    ),
    "the same bytes": (gguf(tensors=[tensor("a", (8,), 0, 0), tensor("b", (8,), 0, 0)], content=96), "inside 'a'"),
    "data cut off": (gguf(tensors=[tensor("a", (1024,), 0, 0)], content=100), "the download did not finish"),
}

UNSUPPORTED_GGUF: dict[str, tuple[bytes, str]] = {
    "version 1": (gguf(version=1), "version at byte 4: found GGUF version 1, expected 2 or 3"),
    "version 4": (gguf(version=4), "version at byte 4: found GGUF version 4, expected 2 or 3"),
    "big-endian": (gguf(version=3 << 24), "version at byte 4: found a big-endian GGUF"),
    "unknown tensor type": (
        gguf(tensors=[tensor("blk.0.odd", (32,), 250, 0)], content=32),
        "type of tensor 'blk.0.odd' at byte 98: found ggml type 250",
    ),
    "removed tensor type": (gguf(tensors=[tensor("a", (32,), 4, 0)], content=32), "at byte 90: found ggml type 4"),
}

SAFETENSORS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "found 0 bytes"),
    "only a length": (struct.pack("<Q", 2), "found 8 bytes"),
    "length 0": (safetensors({"a": A}, 24, length=0), "found 0, expected 2 to 100000000"),
    "length 2^64 - 1": (safetensors({"a": A}, 24, length=2**64 - 1), "expected 2 to 100000000"),
    "length beyond the file": (safetensors({"a": A}, 24, length=5000), "the download did not finish"),
    "no UTF-8": (safetensors(b'{"\xff": 1}'), "not UTF-8 at byte 2"),
    "no JSON": (safetensors(b'{"a": '), "found no valid JSON"),
    "a list": (safetensors(b"[1, 2, 3]"), "found a JSON list, expected an object"),
    "nested without end": (safetensors(b'{"a":' + b"[" * 100_000), "nested too deeply"),
    "a huge number": (safetensors(b'{"a": ' + b"9" * 10_000 + b"}"), "found no valid JSON"),
    "not a number": (safetensors(b'{"a": NaN}'), "NaN is not a JSON number"),
    "name twice": (safetensors(b'{"a": {}, "a": {}}'), "key 'a' occurs twice"),
    "metadata of numbers": (safetensors({"__metadata__": {"a": 1}}), "expected an object of strings"),
    "metadata a list": (safetensors({"__metadata__": []}), "expected an object of strings"),
    "entry no object": (safetensors({"a": 3}), "expected an object with dtype, shape and data_offsets"),
    "entry without shape": (safetensors({"a": {"dtype": "F32", "data_offsets": [0, 4]}}, 4), "expected an object with"),
    "shape of strings": (safetensors({"a": A | {"shape": ["2", 3]}}, 24), "found shape"),
    "shape negative": (safetensors({"a": A | {"shape": [-2, -3]}}, 24), "found shape"),
    "shape of floats": (safetensors({"a": A | {"shape": [2.0, 3]}}, 24), "found shape"),
    "shape of booleans": (safetensors({"a": A | {"shape": [True, 6]}}, 24), "found shape"),
    "shape too large": (safetensors({"a": A | {"shape": [2**62, 4]}}, 24), "found shape"),
    "nine dimensions": (safetensors({"a": A | {"shape": [1] * 8 + [6]}}, 24), "found shape"),
    "offsets reversed": (safetensors({"a": A | {"data_offsets": [24, 0]}}, 24), "expected [begin, end]"),
    "one offset": (safetensors({"a": A | {"data_offsets": [24]}}, 24), "expected [begin, end]"),
    "offsets negative": (safetensors({"a": A | {"data_offsets": [-24, 0]}}, 24), "expected [begin, end]"),
    "too few bytes": (safetensors({"a": A | {"data_offsets": [0, 20]}}, 20), "found 20 bytes, expected 24"),
    "a hole": (safetensors({"a": A | {"data_offsets": [8, 32]}}, 32), "found a hole after the header"),
    "an overlap": (safetensors({"a": A, "b": A | {"data_offsets": [16, 40]}}, 40), "found an overlap after 'a'"),
    "the same bytes": (safetensors({"a": A, "b": A}, 24), "found an overlap after 'a'"),
    "data cut off": (safetensors({"a": A}, 23), "the download did not finish"),
    "data too long": (safetensors({"a": A}, 25), "found 1 bytes after the last tensor"),
}
