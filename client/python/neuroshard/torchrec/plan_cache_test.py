"""Plans of earlier starts.

  plan_cache_test.py PLANNER CLIENT     paths of neuroshard-planner and neuroshard
"""

import json
import logging
import os
import tempfile

from planner_case import GIB, Case, Model, bag, bags, gpus, main, make, nobody, small_model
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError, PlannerErrorType
from torchrec.distributed.sharding_plan import get_default_sharders

from neuroshard.torchrec.layout import from_sharding_plan


class CacheTest(Case):
    def test_a_restart_asks_nobody(self):
        with tempfile.TemporaryDirectory() as folder:
            first = make(cache_dir=folder).plan(small_model(), get_default_sharders())
            with nobody() as address:
                planner = make(address, cache_dir=folder, retries=0)
                self.assertEqual(planner.plan(small_model(), get_default_sharders()), first)
                self.assertIsNone(planner.response)
                self.assertEqual(len(planner.get_selected_options()), 3)
                for change in (
                    {"batch_size": 256},
                    {"optimizer": "adam"},
                    {"topology": gpus(hbm_cap=10 * GIB)},
                    {"request": {"cost_model": {"name": "cpu-amd-epyc", "version": 1}}},
                    {"request": {"search": {"seed": 1}}},
                    {"constraints": {"a": ParameterConstraints(sharding_types=["table_wise"])}},
                ):
                    with self.refused(PlannerErrorType.OTHER, address):
                        make(address, cache_dir=folder, retries=0, **change).plan(small_model(), get_default_sharders())
                # The order of tables and the id of a request are nothing that a plan depends on.
                other_order = Model(ebc=bags(bag("c", 3000, 32), bag("a"), bag("b", 2000)))
                again = make(address, cache_dir=folder, request={"request_id": "restart"}).plan(other_order, get_default_sharders())
                self.assertEqual(from_sharding_plan(again), from_sharding_plan(first))

    def test_a_file_says_which_content_of_a_version_priced_it(self):
        with tempfile.TemporaryDirectory() as folder:
            asked = {"name": "cpu-amd-epyc", "version": 4}
            planner = make(cache_dir=folder, request={"cost_model": asked})
            planner.plan(small_model(), get_default_sharders())
            digest = planner.response.cost_model.digest
            self.assertRegex(digest, "^[0-9a-f]{64}$")
            (file,) = os.listdir(folder)
            with open(os.path.join(folder, file), encoding="utf-8") as content:
                self.assertEqual(json.load(content)["cost_model"], f"cpu-amd-epyc/4@{digest}")
            # A digest in the request is a part of what the plan is for, and has to be there.
            make(cache_dir=folder, request={"cost_model": {**asked, "digest": digest}}).plan(small_model(), get_default_sharders())
            self.assertEqual(len(os.listdir(folder)), 2)
            with self.assertRaisesRegex(PlannerError, "its files were replaced, or this planner has other ones"):
                make(cache_dir=folder, request={"cost_model": {**asked, "digest": "0" * 64}}).plan(small_model(), get_default_sharders())

    def test_what_a_plan_does_not_decide_is_not_cached(self):
        with tempfile.TemporaryDirectory() as folder:
            make(cache_dir=folder).plan(small_model(), get_default_sharders())
            with nobody() as address:
                constraints = {"a": ParameterConstraints(enforce_hbm=True)}
                plan = make(address, cache_dir=folder, constraints=constraints).plan(small_model(), get_default_sharders())
            self.assertTrue(plan.plan["ebc"]["a"].enforce_hbm)

    def test_on_change_fail_says_what_changed(self):
        with tempfile.TemporaryDirectory() as folder:
            make(cache_dir=folder, on_change="fail").plan(small_model(), get_default_sharders())
            make(cache_dir=folder, on_change="fail").plan(small_model(), get_default_sharders())
            bigger = Model(ebc=bags(bag("a", 1500), bag("b", 2000), bag("d", 3000, 32)))
            with self.refused(
                PlannerErrorType.PLANNER_INPUT_CONTEXT_MISMATCH, 'tables.ebc.a.num_embeddings was "1000" and is "1500"', "tables.ebc.c is gone",
                "tables.ebc.d is new",
            ):
                make(cache_dir=folder, on_change="fail").plan(bigger, get_default_sharders())
            make(cache_dir=folder).plan(bigger, get_default_sharders())
        with self.assertRaises(ValueError):
            make(on_change="fail")
        with self.assertRaises(ValueError):
            make(on_change="whatever", cache_dir="x")

    def test_damaged_files_are_planned_again(self):
        with tempfile.TemporaryDirectory() as folder:
            first = make(cache_dir=folder).plan(small_model(), get_default_sharders())
            (name,) = os.listdir(folder)
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as file:
                text = file.read()
            moved = json.loads(text)
            moved["plan"]["ebc"]["b"]["shards"][0]["shard_offsets"][0] += 1
            for damaged in ("", text[: len(text) // 2], text.replace('"plan"', '"plam"'), "[]", json.dumps(moved)):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(damaged)
                with self.assertLogs("neuroshard.torchrec", logging.WARNING) as logged:
                    self.assertEqual(make(cache_dir=folder).plan(small_model(), get_default_sharders()), first)
                self.assertIn(path, "".join(logged.output))
                with open(path, encoding="utf-8") as file:
                    self.assertEqual(json.load(file)["plan"], json.loads(text)["plan"])
                self.assertEqual(os.listdir(folder), [name])

    def test_a_directory_that_cannot_be_written_costs_the_cache_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(f"{folder}/file", "w", encoding="utf-8"):
                pass
            with self.assertLogs("neuroshard.torchrec", logging.WARNING) as logged:
                make(cache_dir=f"{folder}/file/below").plan(small_model(), get_default_sharders())
            self.assertIn("not cached", "".join(logged.output))


if __name__ == "__main__":
    main()
