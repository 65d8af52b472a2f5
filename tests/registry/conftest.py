"""One thread is enough here, and more would only get in the way of the tests beside."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
