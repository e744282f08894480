"""Write GGUF files from a Hugging Face folder with the gguf package, quantised by llama.cpp, so that an independent
program wrote them.

Runs in an environment with gguf, llama-cpp-python and numpy:
    python benchmarks/make_gguf.py MODEL_FOLDER OUT_FOLDER --types f32 f16 q8_0 q5_1 q2_k q6_k
A .gguf file in float32 may stand in the place of MODEL_FOLDER: then it is quantised only.
--dequantised writes beside each quantised file x.gguf a file x-as-f32.gguf with the same weights in float32.
"""

import argparse
import json
import sys
from pathlib import Path

import gguf
import numpy as np
from gguf_architectures import ARCHITECTURES, add_config, gguf_tensors
from gguf_vocabulary import add_tokenizer
from numpy.typing import NDArray

FILE_TYPES = {
    "f16": "F16", "q8_0": "Q8_0", "q4_0": "Q4_0", "q4_1": "Q4_1", "q5_0": "Q5_0", "q5_1": "Q5_1", "q2_k": "Q2_K",
    "q3_k": "Q3_K_S", "q4_k": "Q4_K_S", "q5_k": "Q5_K_S", "q6_k": "Q6_K", "iq4_nl": "IQ4_NL", "iq4_xs": "IQ4_XS",
    "mxfp4": "MXFP4_MOE", "tq1_0": "TQ1_0", "tq2_0": "TQ2_0",
}  # fmt: skip
# Files in which llama.cpp gives some tensors more bits; our q2_k_m is what it calls Q2_K.
MIXES = {"q2_k_m": "Q2_K", "q3_k_l": "Q3_K_L", "q4_k_m": "Q4_K_M", "q5_k_m": "Q5_K_M"}


def read_tensors(folder: Path) -> dict[str, NDArray[np.float32]]:
    """Every tensor of the folder's safetensors files, as float32 (read here: the package needs not be installed)."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        content = np.memmap(path, np.uint8, "r")
        header_bytes = int(content[:8].view("<u8")[0])
        header = json.loads(content[8 : 8 + header_bytes].tobytes())
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
            raw = np.ascontiguousarray(content[begin:end])
            if entry["dtype"] == "BF16":
                wide = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
            else:
                wide = raw.view({"F16": "<f2", "F32": "<f4"}[entry["dtype"]]).astype(np.float32)
            tensors[name] = wide.reshape(entry["shape"])
    return tensors


def write_float(folder: Path, out: Path, *, as_f16: bool) -> None:
    """The model in float32, or with its matrices in float16 (vectors and routers stay in float32)."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    writer = gguf.GGUFWriter(out, gguf.MODEL_ARCH_NAMES[ARCHITECTURES[config["model_type"]]])
    add_config(writer, config, folder)
    add_tokenizer(writer, config, folder)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if as_f16 else gguf.LlamaFileType.ALL_F32)
    for name, tensor in gguf_tensors(config, read_tensors(folder)).items():
        is_narrow = as_f16 and tensor.ndim > 1 and "ffn_gate_inp" not in name
        writer.add_tensor(name, tensor.astype(np.float16) if is_narrow else tensor)
    _finish(writer)


def write_dequantised(source: Path, out: Path) -> None:
    """The file `source` with every tensor as float32: what a run without rounding of activations would compute with."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, str(reader.get_field("general.architecture").contents()))
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name not in ("general.architecture", "general.file_type"):
            sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, values.reshape([int(n) for n in reversed(tensor.shape)]))
    _finish(writer)


def _finish(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantise(source: Path, out: Path, file_type: str) -> None:
    """Every matrix in the one type (`pure`) or a mix, by llama.cpp; where columns do not fit, it takes another type."""
    import llama_cpp

    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{(FILE_TYPES | MIXES)[file_type]}")
    params.pure = file_type in FILE_TYPES
    code = llama_cpp.llama_model_quantize(str(source).encode(), str(out).encode(), params)
    if code != 0:
        sys.exit(f"{out}: llama_model_quantize returned {code}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="Hugging Face folder, or a GGUF file in float32")
    parser.add_argument("out", type=Path, help="folder for NAME-TYPE.gguf")
    parser.add_argument("--types", nargs="+", default=["f32", *FILE_TYPES], choices=["f32", *FILE_TYPES, *MIXES])
    parser.add_argument("--dequantised", action="store_true", help="also write NAME-TYPE-as-f32.gguf")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    is_gguf = arguments.model.suffix == ".gguf"
    name = arguments.model.stem.removesuffix("-f32") if is_gguf else arguments.model.resolve().name
    source = arguments.model if is_gguf else arguments.out / f"{name}-f32.gguf"
    if not is_gguf and not source.exists():
        write_float(arguments.model, source, as_f16=False)
    for kind in arguments.types:
        out = arguments.out / f"{name}-{kind}.gguf"
        if kind == "f32" and is_gguf and not out.exists():
            write_dequantised(source, out)
        elif kind == "f16" and not is_gguf and not out.exists():
            write_float(arguments.model, out, as_f16=True)
        elif kind != "f32" and not out.exists():
            quantise(source, out, kind)
        if arguments.dequantised and kind != "f32":
            wide = arguments.out / f"{name}-{kind}-as-f32.gguf"
            if not wide.exists():
                write_dequantised(out, wide)
        print(out)


if __name__ == "__main__":
    main()
