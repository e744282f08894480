"""Nearly all instructions of a decode step are in kernels: what is around them must not grow."""

import shutil

import pytest
from benchmark_scripts import script

from edgert import _core
from edgert.llm import DEFAULT_MODEL

instructions = script("instructions")

PROFILE = """\
version: 1
creator: somebody

fn=(1) edgert::Executor::run(float*)
0 10
calls=2 0
0 900
+3 5
fn=(2) edgert::avx2::(anonymous namespace)::attend(edgert::AttentionTask const&)
0 300
calls=1 0
* 50
fn=(3) edgert::scalar::(anonymous namespace)::dequantize(int)
0 40
fn=(2)
-2 45

totals: 400
"""


def testown_costs_leave_out_what_is_called() -> None:
    costs = instructions.own_costs(PROFILE)
    assert list(costs.values()) == [15, 345, 40]
    assert instructions.kernel_share(costs) == 385 / 400


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
@pytest.mark.skipif("avx2" not in [name for name, _, is_supported in _core.isa_levels() if is_supported], reason="avx2")
def test_a_decode_step_runs_in_kernels() -> None:
    costs = instructions.count_instructions(DEFAULT_MODEL, steps=8)
    if not costs:
        pytest.skip("the module has no symbols")
    assert instructions.kernel_share(costs) >= instructions.ASKED, costs.most_common(12)
