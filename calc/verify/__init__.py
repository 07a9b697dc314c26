"""Ours against something real: a checkpoint, a printed model, a measurement. Logs stand in `logs`."""

from calc.verify.checkpoint import Checkpoint, StoredTensor, read_safetensors
from calc.verify.compare import Comparison, compare
from calc.verify.gguf import read_gguf
from calc.verify.logs.planned_buffers import BufferRow, planned_buffers_of
from calc.verify.measurement import MeasuredRow, Measurement, closeness, read_measurement, with_predictions
from calc.verify.printed import read_printed
