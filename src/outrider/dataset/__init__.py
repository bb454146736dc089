"""Experience on disk: appended as it comes, read as whole episodes, safe against a writer that dies.

`Dataset` is the entry; `EpisodeSequence`, `DatasetSummary`, `EpisodeCounts` and `Moments` are what it returns.
"""

from outrider.dataset.dataset import Dataset
from outrider.dataset.episode_sequence import EpisodeSequence
from outrider.dataset.summary import DatasetSummary, EpisodeCounts, Moments

__all__ = ["Dataset", "DatasetSummary", "EpisodeCounts", "EpisodeSequence", "Moments"]
