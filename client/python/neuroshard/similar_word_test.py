"""What was meant, as the tests of common/base/similar_word.h have it."""

import unittest

from neuroshard.similar_word import _synonyms, did_you_mean


class SimilarWordTest(unittest.TestCase):
    def meant(self, word):
        return f"; did you mean {word}?" if word else ""

    def test_misspelt_words(self):
        fields = ["name", "num_embeddings", "embedding_dim", "max_tables_per_rank", "refine_steps", "time_budget_ms"]
        for written, word in (
            ("nmae", "name"), ("num_embedings", "num_embeddings"), ("NumEmbeddings", "num_embeddings"), ("num-embeddings", "num_embeddings"),
            ("embeding_dim", "embedding_dim"), ("steps", "refine_steps"), ("time_budget", "time_budget_ms"), ("time_limit_s", "time_budget_ms (in milliseconds)"),
            ("colour", ""), ("tables", ""), ("", ""), ("...", ""), ("p" * 100_000, ""),
        ):  # fmt: skip
            self.assertEqual(did_you_mean(written, fields), self.meant(word), written[:20])

    def test_words_of_other_projects(self):
        types = ["data_parallel", "table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid_shard"]
        for written, word in (
            ("colum_wise", "column_wise"), ("ShardingType.COLUMN_WISE", "column_wise"), ("cw", "column_wise"), ("twrw", "table_row_wise"), ("dp", "data_parallel"),
            ("rowwise", "row_wise"), ("grid", "grid_shard"), ("diagonal", ""),
        ):  # fmt: skip
            self.assertEqual(did_you_mean(written, types), self.meant(word), written)
        self.assertEqual(did_you_mean("batch_size", ["tables", "global_batch_size"]), self.meant("global_batch_size (of all ranks together)"))
        self.assertEqual(did_you_mean("batch_size", ["tables"]), "")

    def test_every_synonym_is_used(self):
        self.assertGreater(len(_synonyms()), 100)
        for written, word, difference in _synonyms():
            self.assertEqual(did_you_mean(written, [word]), self.meant(f"{word} ({difference})" if difference else word))


if __name__ == "__main__":
    unittest.main()
