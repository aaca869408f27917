"""Public names of the package, each with its module, for type checkers and `__getattr__`."""

from countperf.api.applications import predict_application as predict_application
from countperf.api.calibration import calibrate as calibrate
from countperf.api.catalogue import measure_catalogue as measure_catalogue
from countperf.api.evaluation import evaluate as evaluate
from countperf.api.evaluation import fit as fit
from countperf.api.fits import available_weights as available_weights
from countperf.api.kernels import load_kernel as load_kernel
from countperf.api.mechanistic_models import occupancy as occupancy
from countperf.api.mechanistic_models import predict_all as predict_all
from countperf.api.mechanistic_models import predict_on as predict_on
from countperf.api.mechanistic_models import step_formulas as step_formulas
from countperf.api.mechanistic_models import sweep as sweep
from countperf.api.prediction import explain as explain
from countperf.api.prediction import predict as predict
from countperf.api.prediction import with_compiled_code as with_compiled_code
from countperf.api.searching import rank as rank
from countperf.api.searching import tune as tune
from countperf.api.timing import recording as recording
from countperf.api.timing import time_kernel as time_kernel
from countperf.counting.analysis import KernelAnalysis as KernelAnalysis
from countperf.counting.analysis import analyze_kernel as analyze_kernel
from countperf.counting.count_properties import count_kernel as count_kernel
from countperf.counting.vector import Count as Count
from countperf.counting.vector import PropertyVector as PropertyVector
from countperf.devices.discovery import doctor as doctor
from countperf.errors import CountperfError as CountperfError
from countperf.figures import draw as draw
from countperf.measuring import KernelCase as KernelCase
from countperf.measuring import Measurement as Measurement
from countperf.measuring import MeasurementSet as MeasurementSet
from countperf.measuring import Timing as Timing
from countperf.measuring.campaign import measure as measure
from countperf.mechanistic.compiled_profile import profile_kernel as profile_kernel
from countperf.models.library import load_weights as load_weights
from countperf.models.predictions import Prediction as Prediction
from countperf.models.weights import WeightSet as WeightSet
from countperf.tuning.space import SearchSpace as SearchSpace

__version__: str
__all__: list[str]
