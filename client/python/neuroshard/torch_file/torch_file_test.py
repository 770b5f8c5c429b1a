"""Files of torch.save: what PyTorch wrote is read value by value, and what could do harm is refused by name."""

import array
import json
import os
import pickle
import struct
import tempfile
import unittest
import zipfile

from neuroshard import torch_file
from neuroshard.torch_file import TorchFileError

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "testdata")


def data(name):
    return os.path.join(DATA, name)


def flat(value):
    return [number for part in value for number in flat(part)] if isinstance(value, list) else [value]


class TorchFileTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def rewritten(self, source, change, name="changed.pt"):
        """A copy of a zip file with its members as `change` gives them: name, bytes -> bytes, or None for leaving it out."""
        with zipfile.ZipFile(data(source)) as old, zipfile.ZipFile(self.path(name), "w") as new:
            for member in old.namelist():
                content = change(member, old.read(member))
                if content is not None:
                    new.writestr(member, content)
        return self.path(name)

    def with_pickle(self, content):
        return self.rewritten("compute.pt", lambda name, old: content if name.endswith("data.pkl") else old)

    def assert_refused(self, path, *words):
        with self.assertRaises(TorchFileError) as raised:
            torch_file.load(path)
        for word in (path, *words):
            self.assertIn(word, str(raised.exception))

    def test_both_formats_hold_the_same_values(self):
        new, old = torch_file.load(data("compute.pt")), torch_file.load(data("compute_legacy.pt"))
        self.assertEqual(list(new["state_dict"]), list(old["state_dict"]))
        self.assertEqual(new["table_mlp_sizes"], [6, 4])
        for name, tensor in new["state_dict"].items():
            self.assertEqual(tensor.shape, old["state_dict"][name].shape)
            self.assertEqual(tensor.values(), old["state_dict"][name].values())
        self.assertEqual(new["feature_means"].values(), old["feature_means"].values())

    def test_halves_bfloat16_strides_and_offsets_give_pytorchs_values(self):
        with open(data("expected.json"), encoding="utf-8") as file:
            expected = json.load(file)["other_names"]
        for name, tensor in torch_file.load(data("other_names.pt")).items():
            self.assertEqual(tensor.values(), flat(expected[name]), name)
        self.assertFalse(torch_file.load(data("other_names.pt"))["embed.weight"].is_contiguous)

    def test_integers_of_both_widths(self):
        for name in ("dataset.pt", "dataset_legacy_int.pt"):
            ids, offsets, lengths = torch_file.load(data(name))
            self.assertEqual(ids.values(), [5, 5, 5, 7, 900, 0, 1, 1, 1, 2, 2, 40, 41])
            self.assertEqual(lengths.shape, (3, 4))
            self.assertEqual(offsets.values()[-1], 13)

    def test_big_endian_files_are_swapped(self):
        def swap(name, content):
            if name.endswith("byteorder"):
                return b"big"
            if "/data/" in name:
                values = array.array("f", content)
                values.byteswap()
                return values.tobytes()
            return content

        new = torch_file.load(self.rewritten("compute.pt", swap))
        self.assertEqual(new["feature_stds"].values(), torch_file.load(data("compute.pt"))["feature_stds"].values())
        self.assert_refused(self.rewritten("compute.pt", lambda name, old: b"pdp" if name.endswith("byteorder") else old), "byteorder")

    def test_nothing_in_a_file_is_executed(self):
        trace = self.path("trace")

        class Harm:
            def __reduce__(self):
                return os.mkdir, (trace,)

        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            self.assert_refused(self.with_pickle(pickle.dumps({"state_dict": Harm()}, protocol)), "mkdir is refused")
        self.assert_refused(self.with_pickle(b"cbuiltins\neval\n(S'1'\ntR."), "builtins.eval is refused")
        self.assert_refused(self.with_pickle(b"(S'" + trace.encode() + b"'\nios\nmkdir\n."), "opcode INST")
        self.assert_refused(data("whole_module.pt"), "__main__.Compute is refused")
        self.assertFalse(os.path.exists(trace))

    def test_broken_pickles_are_faults_not_crashes(self):
        for content in (b"", b".", b"N", b"(.", b"NN.", b"t.", b"a.", b"0.", b"]N.", b"\x80\x02r\xff\xff\xff\xff.", b"jabcd.", b"}(K\x01u.", b"]]s.", b"]}b.",
                        b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.", b"ccollections\nOrderedDict\n.", b"Q.", b"NQ.", b"NNR.", b"}]Ns."):
            self.assert_refused(self.with_pickle(content), "pickle")

    def test_tensors_stay_inside_their_storage(self):
        with zipfile.ZipFile(data("compute.pt")) as archive:
            content = archive.read("compute/data.pkl")
        bias = content.index(b"t_hidden.0.bias")
        shape = content.index(b"K\x06\x85", bias)  # the tuple (6,)
        self.assert_refused(self.with_pickle(content[:shape] + b"K\x07\x85" + content[shape + 3 :]), "reaches value 6 of a storage of 6")

    def test_damage_is_named(self):
        missing = self.rewritten("compute.pt", lambda name, old: None if name.endswith("/data/0") else old)
        self.assert_refused(missing, "storage 0 is missing")
        self.assert_refused(self.rewritten("compute.pt", lambda name, old: old[:-4] if name.endswith("/data/0") else old), "has not the 480 bytes")
        self.assert_refused(self.rewritten("compute.pt", lambda name, old: None if name.endswith("data.pkl") else old), "without one data.pkl")
        with zipfile.ZipFile(self.path("script.pt"), "w") as archive:
            archive.writestr("a/data.pkl", b"N.")
            archive.writestr("a/constants.pkl", b"N.")
        self.assert_refused(self.path("script.pt"), "TorchScript")
        self.assert_refused(self.path("absent.pt"), "No such file")
        for name, content in (("empty", b""), ("text", b"hello\n"), ("gzip", b"\x1f\x8b\x08"), ("zip", b"PK\x03\x04rest"), ("number", pickle.dumps(5, 2))):
            with open(self.path(name), "wb") as file:
                file.write(content)
            self.assert_refused(self.path(name), "")
        with open(data("compute_legacy.pt"), "rb") as file:
            whole = file.read()
        for length in range(0, len(whole), 31):
            with open(self.path("short.pt"), "wb") as file:
                file.write(whole[:length])
            self.assert_refused(self.path("short.pt"), "")

    def test_every_damaged_byte_of_the_pickle_is_a_fault_or_a_value(self):
        with zipfile.ZipFile(data("comm_2_bw.pt")) as archive:
            content = archive.read("comm_2_bw/data.pkl")
        for at in range(0, len(content), 13):
            for flip in (1, 0x80):
                changed = content[:at] + bytes([content[at] ^ flip]) + content[at + 1 :]
                path = self.rewritten("comm_2_bw.pt", lambda name, old: changed if name.endswith("data.pkl") else old)
                try:
                    torch_file.load(path)
                except TorchFileError:
                    pass

    def test_storages_are_found_behind_padding(self):
        tensor = torch_file.load(data("dataset.pt"))[0]
        with open(data("dataset.pt"), "rb") as file:
            file.seek(tensor.storage.file_offset)
            self.assertEqual(struct.unpack("<q", file.read(8))[0], 5)


if __name__ == "__main__":
    unittest.main()
