#!/usr/bin/env python3
"""Writes a made-up data set as torch.save writes (ids, offsets, lengths), of any size and without holding it in memory. Needs NumPy.

  write_dataset.py --tables 856 --batch-size 65536 --ids 887000000 OUT.pt     4.2 GB, as fbgemm_t856_bs65536.pt
"""

import argparse
import zipfile

import numpy

META = ("Int", "Long", "Int")  # as in dlrm_datasets, to judge by the size of its files


def _tensor(key, kind, shape):
    """Opcodes of a contiguous tensor over a storage of its own."""
    count, strides, step = 1, [], 1
    for extent in reversed(shape):
        strides.insert(0, step)
        count, step = count * extent, step * extent
    numbers = lambda values: "(" + "".join(f"I{value}\n" for value in values) + "t"
    storage = f"(Vstorage\nctorch\n{kind}Storage\nV{key}\nVcpu\nI{count}\ntQ"
    return f"ctorch._utils\n_rebuild_tensor_v2\n({storage}I0\n{numbers(shape)}{numbers(strides)}I00\nccollections\nOrderedDict\n(tRtR"


def write(path, ids, num_ids, lengths, kinds=META, byte_order="little"):
    """ids: arrays one after the other, num_ids together; lengths: array [tables, batch]; kinds: of ids, offsets and lengths."""
    shapes = ([num_ids], [lengths.size + 1], list(lengths.shape))
    content = "(" + "".join(_tensor(str(i), kind, shape) for i, (kind, shape) in enumerate(zip(kinds, shapes))) + "t."
    stored = [{"little": "<", "big": ">"}[byte_order] + {"Long": "i8", "Int": "i4"}[kind] for kind in kinds]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("data/data.pkl", b"\x80\x02" + content.encode())
        archive.writestr("data/byteorder", byte_order)
        with archive.open("data/data/0", "w", force_zip64=True) as member:
            for piece in ids:
                member.write(numpy.ascontiguousarray(piece, dtype=stored[0]).data.cast("B"))
        offsets = numpy.concatenate([[0], numpy.cumsum(lengths.ravel(), dtype=numpy.int64)])
        archive.writestr("data/data/1", offsets.astype(stored[1]).tobytes())
        archive.writestr("data/data/2", lengths.astype(stored[2]).tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--tables", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--ids", type=int, default=100000, help="about so many in all")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random = numpy.random.default_rng(options.seed)
    shares = random.pareto(1.0, options.tables)
    means = shares / shares.sum() * options.ids / options.batch_size
    lengths = numpy.stack([random.poisson(mean, options.batch_size).astype(numpy.int32) for mean in means])

    def ids():
        for table in lengths:
            left, rows = int(table.sum(dtype=numpy.int64)), int(10 ** random.uniform(2, 7))
            while left:
                count = min(left, 1 << 20)
                yield (rows * random.random(count) ** 4).astype(numpy.int64)  # a few ids often, many seldom
                left -= count

    write(options.out, ids(), int(lengths.sum(dtype=numpy.int64)), lengths)


if __name__ == "__main__":
    main()
