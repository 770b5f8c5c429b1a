"""Statistics of tables from data sets (neuroshard-dataset-statistics). Needs NumPy: the extra `dataset`."""
