#!/usr/bin/env python3
"""Downloads FBGEMM's wheel, cuts its lookup kernels down to one GPU architecture and to the optimizers that are compared, and packs what is left:

  bench/gpu/pack_fbgemm.py --architecture 90 --out fbgemm.tar.xz    # 28 MB of 465; needs pip, readelf and zstandard (PyPI)

For hosts without network (bench/gpu/VISIT.md): unpacked into a folder on PYTHONPATH, where python3 has the torch that this FBGEMM was built for.
Machine code of other architectures, and of kernels that fbgemm_tbe.py and fbgemm_cases.py do not call, becomes zeros, which pack to nothing; a
kernel that is gone fails when it is launched. Everything else of the libraries stays where it is.
"""
import argparse
import pathlib
import re
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile

# Libraries that are loaded on the way to split_table_batched_embeddings; of the second list the CPU's half is enough.
LIBRARIES = ["asmjit", "fbgemm", "fbgemm_gpu_config", "fbgemm_gpu_tbe_utils", "fbgemm_gpu_tbe_cache", "fbgemm_gpu_tbe_common",
             "fbgemm_gpu_sparse_async_cumsum", "fbgemm_gpu_tbe_training_forward", "fbgemm_gpu_tbe_training_backward",
             "fbgemm_gpu_tbe_training_backward_pt2", "fbgemm_gpu_tbe_training_backward_split_host", "fbgemm_gpu_py"]
WITHOUT_GPU_CODE = ["fbgemm_gpu_tbe_training_backward_dense", "fbgemm_gpu_tbe_training_backward_gwd", "fbgemm_gpu_tbe_training_backward_vbe",
                    "fbgemm_gpu_tbe_optimizers", "fbgemm_gpu_tbe_index_select", "fbgemm_gpu_tbe_inference"]
NEEDED = re.compile(rb"_ZN?\d*(?:split_embedding_codegen_forward_(?:un)?weighted_(?:v2_)?kernel"
                    rb"|split_embedding_backward_codegen_(?:sgd|rowwise_adagrad)_(?:un)?weighted_kernel"
                    rb"|split_embedding_codegen_grad_indice_weights_kernel)")
UNNEEDED = re.compile(rb"ssd_|dense_embedding|nobag|_vbe_|gwd|backward_codegen_(?:adagrad|adam|lamb|lars_sgd|partial|none|ensemble"
                      rb"|rowwise_adagrad_with_counter)")
FATBIN_MAGIC = 0xBA55ED50
COMPRESSED = 0x8000


def fatbin_section(path):
    """Offset and size of .nv_fatbin in the file; None where it has none."""
    sections = subprocess.run(["readelf", "-S", "-W", path], capture_output=True, text=True, check=True).stdout
    for line in sections.splitlines():
        if ".nv_fatbin " in line:
            fields = line.split("]")[1].split()
            return int(fields[3], 16), int(fields[4], 16)
    return None


def entries(data, begin, size):
    """Of every image in the section: architecture, begin and end of its code, bytes of it that are compressed, flags."""
    at = begin
    while at + 16 <= begin + size:
        magic, _, header_bytes, bytes_of_all = struct.unpack_from("<IHHQ", data, at)
        if magic != FATBIN_MAGIC:
            at += 8
            continue
        entry, end = at + header_bytes, at + header_bytes + bytes_of_all
        while entry < end:
            _, _, header, code_bytes, packed_bytes, _, _, _, architecture, _, _, flags = struct.unpack_from("<HHIQIIHHIIIQ", data, entry)
            yield architecture, entry + header, entry + header + code_bytes, packed_bytes, flags
            entry += header + code_bytes
        at = (end + 7) // 8 * 8


def is_needed(code, packed_bytes, flags):
    import zstandard

    if flags & COMPRESSED:
        code = zstandard.ZstdDecompressor().decompressobj().decompress(code[:packed_bytes])
    kernels = [name for name in set(re.findall(rb"\.text\.(_Z\w+)", code)) if not name.startswith(b"_ZN3cub")]
    return any(map(NEEDED.match, kernels)) or not kernels or not all(map(UNNEEDED.search, kernels))


def cut(path, architecture):
    data = bytearray(path.read_bytes())
    for of, begin, end, packed_bytes, flags in list(entries(data, *fatbin_section(path) or (0, 0))):
        if of != architecture or path.stem in WITHOUT_GPU_CODE or not is_needed(bytes(data[begin:end]), packed_bytes, flags):
            data[begin:end] = bytes(end - begin)
    path.write_bytes(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architecture", type=int, default=90, help="90: H100 and H200, 80: A100")
    parser.add_argument("--version", default="1.6.0", help="of fbgemm-gpu; 1.6.0 is torch 2.11's, 1.9.0 torch 2.14's")
    parser.add_argument("--python", default="3.12", help="version of the host's python3")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="a .tar.xz")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--implementation", "cp", "--python-version", options.python,
                        "--platform", "manylinux_2_28_x86_64", "-d", scratch, f"fbgemm-gpu=={options.version}"], check=True)
        with zipfile.ZipFile(next(scratch.glob("*.whl"))) as wheel:
            wheel.extractall(scratch / "site")
        for library in (scratch / "site/fbgemm_gpu").glob("*.so"):
            if library.stem in LIBRARIES + WITHOUT_GPU_CODE:
                cut(library, options.architecture)
            else:
                library.unlink()
        part = options.out.with_name(options.out.name + ".part")
        with tarfile.open(part, "w:xz") as archive:
            archive.add(scratch / "site/fbgemm_gpu", "fbgemm_gpu")
        part.rename(options.out)
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
