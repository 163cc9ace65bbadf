"""PTX and SASS beside the source: every instruction belongs to the line it came from, whoever compiles; what is missing is named."""

from __future__ import annotations

import stat
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from numba import cuda

import solcourse as sol
from solcourse import toolchain
from solcourse.assembly import read_ptx, read_sass
from solcourse.errors import LaunchError, SolcourseError
from solcourse.kernels import cases
from solcourse.registers import TABLE_CCS, table
from solcourse.simt import frontend


@cuda.jit(device=True)
def square(v):
    return v * v


@cuda.jit
def score(x, y):  # x, y (n,) float32
    i = cuda.grid(1)
    if i < x.size and x[i] < np.float32(2):  # & <b>not bold</b>
        y[i] = square(x[i]) * np.float32(3) + y[i]


@cuda.jit(max_registers=24)
def crowded(x, y):  # x, y (n,) float32; 40 values at once
    i = cuda.grid(1)
    held = cuda.local.array(40, np.float32)
    for j in range(40):
        held[j] = x[(i + j) % x.size]
    total = np.float32(0)
    for j in range(40):
        for m in range(40):
            total += held[j] * held[m]
    y[i] = total


X, Y = np.ones(4096, np.float32), np.ones(4096, np.float32)
SCORE = score[128, 32]
WAYS = ["llvmlite", pytest.param("nvvm", marks=pytest.mark.nvvm)]


@pytest.fixture(autouse=True)
def nvvm_is_there(request):
    if request.node.get_closest_marker("nvvm") and frontend.front_end() != "numba-cuda":
        pytest.skip("needs NVIDIA's compiler, which comes with numba-cuda[cu13]")


def on_line(code, kernel, text, line_of):
    return [i.text.split()[0] for i in code.line(line_of(kernel, text)).instructions]


# ------------------------------------------------------------------------------------------------------------------- PTX
@pytest.mark.parametrize("compiler", WAYS)
def test_every_line_has_the_instructions_that_were_made_of_it(compiler, line_of):
    code = sol.ptx(SCORE, X, Y, compiler=compiler)
    assert [op[:9] for op in on_line(code, score, "* np.float32(3)", line_of)].count("st.global") == 1
    assert on_line(code, score, "* np.float32(3)", line_of).count("fma.rn.f32") == 1  # times 3 and plus y[i], in one
    if compiler == "nvvm":  # LLVM computes it before the branch, and gives it to that line
        assert on_line(code, square, "return", line_of) == ["mul.f32"]
    assert any(op.startswith("mov.u32") for op in on_line(code, score, "cuda.grid", line_of))  # %tid.x
    assert {i.file for i in code.instructions} == {__file__}


@pytest.mark.parametrize("compiler", WAYS)
def test_the_lines_together_are_the_whole_code(compiler):
    code = sol.ptx(SCORE, X, Y, compiler=compiler)
    shown = [i for line in code.lines for i in line.instructions]
    assert sorted(i.index for i in shown) == list(range(len(code.instructions)))
    statements = [line.strip() for line in code.text[code.text.index(".entry") :].splitlines()]
    assert len(shown) == sum(s.endswith(";") and not s.startswith(".") for s in statements)
    assert all(f"[{i.index:>{len(str(len(shown) - 1))}}]" in str(code) for i in shown)


def test_it_needs_no_nvidia_software(monkeypatch):
    monkeypatch.setattr(toolchain, "installed", lambda: False)
    code = sol.ptx(SCORE, X, Y, cc="9.0")
    assert ".target sm_90" in code.text
    assert ".visible .entry score(" in code.text
    assert "llvmlite" in code.compiler
    assert any("not installed" in note for note in code.notes)
    with pytest.raises(SolcourseError, match="pip install 'numba-cuda"):
        sol.ptx(SCORE, X, Y, compiler="nvvm")


@pytest.mark.nvvm
def test_nvvm_is_taken_where_it_is_installed():
    code = sol.ptx(SCORE, X, Y)
    assert code.compiler.startswith("NVVM")
    assert not code.notes
    assert sol.ptx(SCORE, X, Y, cc="7.0").cc == "7.5"  # with a note
    assert "no longer knows compute capability 7.0" in str(sol.ptx(SCORE, X, Y, cc="7.0"))


@cuda.jit
def hard_to_follow(x, y):
    """nvidia-nvvm 13.5 gives up on this one where it is told of the variables."""
    s = cuda.shared.array(512, np.int32, alignment=16)
    t = cuda.threadIdx.x
    i = cuda.blockIdx.x * cuda.blockDim.x + t
    o = t * 4
    s[4 * t + 0] = x[(i * 5 + 0) % x.size]
    s[4 * t + 1] = x[(i * 3 + 1) % x.size]
    s[4 * t + 3] = x[(i * 9 + 3) % x.size]
    s[4 * t + 2] = x[(i * 2 + 2) % x.size]
    cuda.syncthreads()
    v0 = s[o + 3]
    v1 = s[o + 3]
    v2 = s[o + 3]
    s[4 * t + 2] = v2 + v2
    s[4 * t + 3] = v2 + v1
    if t & 1:
        v1 += s[o + 0]
    y[i] = v0 + v1 + v2
    cuda.syncthreads()
    y[i] += s[4 * (t ^ 1) + 1] + s[4 * (t ^ 1)]


@pytest.mark.nvvm
def test_a_kernel_that_nvvm_refuses_with_its_variables_is_compiled_without_them():
    x, y = np.zeros(97, np.int32), np.zeros(512, np.int32)
    code = sol.ptx(hard_to_follow[4, 128], x, y, compiler="nvvm")
    assert code.compiler.startswith("NVVM")
    # the lines are still known: both barriers are on theirs
    assert [line.text.strip() for line in code.lines if any("bar.sync" in str(i) for i in line.instructions)] == ["cuda.syncthreads()"] * 2


@pytest.mark.nvvm
def test_a_compiler_that_fails_is_named_and_llvm_takes_its_place(monkeypatch):
    def fails(*args):
        raise toolchain.ToolTrouble("NVVM failed: it is broken")

    monkeypatch.setattr(toolchain, "nvvm_ptx", fails)
    code = sol.ptx(SCORE, X, Y)
    assert code.compiler.startswith("LLVM")
    assert code.notes[0].startswith("NVVM failed: it is broken, so this is LLVM's own translation")


@pytest.mark.parametrize("compiler", WAYS)
def test_a_compute_capability_that_nobody_knows_is_refused(compiler, capfd):
    with pytest.raises(SolcourseError, match="does not know compute capability 99.0"):
        sol.ptx(SCORE, X, Y, cc="99.0", compiler=compiler)
    assert capfd.readouterr().err == ""


def test_llvm_knows_what_it_is_said_to_know(capfd):
    for cc in toolchain.LLVM_CCS:
        assert f".target sm_{toolchain.arch(cc)}" in sol.ptx(SCORE, X, Y, cc=cc, compiler="llvmlite").text
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "name", ["matmul_tiled", "reduce_shuffle", "histogram_shared", "softmax_warp_per_row", "mandelbrot", "complex_axpy"]
)
def test_reference_kernels_have_ptx_by_llvm(name):
    case = cases()[name]
    arguments = case.make(np.random.default_rng(0), *case.shapes[0])
    code = sol.ptx(case.configured(*case.shapes[0]), *arguments, compiler="llvmlite")
    assert [i.text for i in code.instructions].count("ret") == 1
    assert {i.file for i in code.instructions} == {case.kernel.py_func.__code__.co_filename}


@pytest.mark.parametrize("wrong", ["8", 8.0, (8, 0), "sm_80", ""])
def test_a_wrong_compute_capability_is_refused(wrong):
    with pytest.raises(SolcourseError, match="such as '8.0'"):
        sol.ptx(SCORE, X, Y, cc=wrong)


def test_wrong_use_is_refused():
    with pytest.raises(LaunchError, match="without its launch dimensions"):
        sol.ptx(score, X, Y)
    with pytest.raises(SolcourseError, match="'nvvm', 'llvmlite'"):
        sol.ptx(SCORE, X, Y, compiler="gcc")
    with pytest.raises(SolcourseError, match="is at line 1: it is at lines"):
        sol.ptx(SCORE, X, Y).line(1)


def test_nothing_runs():
    y = Y.copy()
    sol.ptx(SCORE, X, y)
    assert (y == Y).all()


def test_a_report_has_its_own(line_of):
    report = sol.profile(SCORE, X, Y.copy(), device="H100-SXM5-80GB")
    code = report.ptx(compiler="llvmlite")
    assert code.cc == "9.0"
    assert code.instructions == sol.ptx(SCORE, X, Y, cc="9.0", compiler="llvmlite").instructions
    assert report.ptx(cc="8.0", compiler="llvmlite").cc == "8.0"


# -------------------------------------------------------------------------------------------------------------- how it looks
class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.text = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_is_whole_escaped_and_says_what_it_shows(line_of):
    code = sol.ptx(SCORE, X, Y, compiler="llvmlite")
    page = Page(code._repr_html_())
    assert page.open == []
    assert ("b", {}) not in page.tags  # of the comment in the kernel
    words = "".join(page.text)
    assert "# & <b>not bold</b>" in words
    assert code.title in words
    assert all(i.text in words for i in code.instructions)
    assert [tag for tag, attrs in page.tags if tag == "th" and attrs.get("scope") == "col"] == ["th"] * 4
    rows = [attrs for tag, attrs in page.tags if tag == "th" and attrs.get("scope") == "row"]
    assert len(rows) == len(code.lines)
    assert all(attrs.get("aria-hidden") for tag, attrs in page.tags if "height:9px" in attrs.get("style", ""))


def test_the_text_shows_each_line_with_its_count(line_of):
    code = sol.ptx(SCORE, X, Y, compiler="llvmlite")
    line = code.line(line_of(score, "* np.float32(3)"))
    shown = next(text for text in str(code).splitlines() if "* np.float32(3)" in text)
    assert shown.startswith(f"{line.line:>6}  ")
    assert shown.endswith(f"{len(line.instructions)} instructions")


# ------------------------------------------------------------------------------------------------------------------ reading
PTX = """
.version 8.0
.visible .entry k(
\t.param .u64 k_param_0
)
{
\t.reg .b32 \t%r<3>;
\t.loc\t1 3 0
\tld.param.u64 \t%rd1, [k_param_0];
$L__BB0_1:
\t.loc\t2 9 1, function_name $L__info_string0, inlined_at 1 4 7
\tadd.s32 \t%r1, %r2, 1;  // a comment;
\t.loc\t1 0 0
\t{ // callseq 0, 0
\t.param .b32 param0;
\tcall.uni (retval0), f, (param0);
\t} // callseq 0
\t@%p1 bra \t$L__BB0_1;
\tret;
}
\t.file\t1 "/home/me" "k.py"
\t.file\t2 "/env/lib/site-packages/numba/range.py"
"""


def test_ptx_is_read():
    found = read_ptx(PTX)
    assert [(i.text.split()[0], i.line) for i in found] == [("ld.param.u64", 3), ("add.s32", 4), ("call.uni", 4), ("@%p1", 4), ("ret", 4)]
    assert {(i.file, i.function) for i in found} == {("/home/me/k.py", "k")}
    assert [i.labels for i in found] == [(), ("$L__BB0_1",), (), (), ()]
    assert found[1].text == "add.s32       %r1, %r2, 1"


SASS = """
//--------------------- .text.slowpath --------------------------
\t.section\t.text.slowpath,"ax",@progbits
.text.slowpath:
        /*0000*/                   MUFU.RCP R4, R4 ;
        /*0010*/                   RET.ABS.NODEC R20 0x0 ;
.L_x_5:
        /*0020*/                   BRA `(.L_x_5);
        /*0030*/                   NOP;
.text.k:
\t//## File "/home/me/k.py", line 3
        /*0000*/                   MOV R1, c[0x0][0x28] ;
\t//## File "/env/lib/site-packages/numba/range.py", line 9 inlined at "/home/me/k.py", line 4
\t//## File "/home/me/k.py", line 4
.L_x_1:
        /*0010*/              @!P0 BRA `(.L_x_1) ;
        /*0020*/                   EXIT ;
.L_x_2:
        /*0030*/                   BRA `(.L_x_2);
        /*0040*/                   NOP;
        /*0050*/                   NOP;
"""


def test_sass_is_read_the_kernel_first_and_without_padding():
    found = read_sass(SASS)
    assert [(i.text, i.line, i.function) for i in found] == [
        ("MOV R1, c[0x0][0x28]", 3, "k"),
        ("@!P0 BRA `(.L_x_1)", 4, "k"),
        ("EXIT", 4, "k"),
        ("MUFU.RCP R4, R4", 0, "slowpath"),
        ("RET.ABS.NODEC R20 0x0", 0, "slowpath"),
    ]
    assert [i.index for i in found] == [0, 1, 2, 3, 4]
    assert found[1].labels == (".L_x_1",)


# --------------------------------------------------------------------------------------------------------------------- SASS
@pytest.fixture
def a_disassembler(monkeypatch, tmp_path):
    """A program called nvdisasm that prints SASS, on PATH."""
    tool = tmp_path / "nvdisasm"
    tool.write_text(
        f"#!{sys.executable}\nimport sys\nopen({str(tmp_path / 'asked')!r}, 'wb').write(open(sys.argv[-1], 'rb').read())\nprint({SASS!r})\n"
    )
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(toolchain, "nvdisasm", lambda: str(tool))
    return tmp_path / "asked"


@pytest.mark.nvvm
@pytest.mark.skipif(sys.platform == "win32", reason="a script is no program there")
def test_sass_is_what_the_disassembler_says_of_the_machine_code(a_disassembler):
    code = sol.sass(SCORE, X, Y, cc="9.0")
    assert a_disassembler.read_bytes()[:4] == b"\x7fELF"
    assert [i.text for i in code.instructions] == [i.text for i in read_sass(SASS)]
    assert (code.language, code.cc, code.spill_bytes) == ("SASS", "9.0", 0)
    assert f"{code.registers} registers per thread" in str(code)


@pytest.mark.nvvm
def test_sass_of_the_real_disassembler_has_the_source_lines(line_of):
    if toolchain.nvdisasm() is None:
        pytest.skip("nvdisasm is not installed: pip install nvidia-cuda-nvdisasm")
    code = sol.sass(SCORE, X, Y)
    assert on_line(code, score, "* np.float32(3)", line_of).count("FFMA") == 1
    assert on_line(code, square, "return", line_of) == ["FMUL"]
    assert code.instructions[-1].text == "EXIT"


@pytest.mark.nvvm
def test_a_missing_disassembler_is_named_with_its_cure(monkeypatch):
    monkeypatch.setattr(toolchain, "nvdisasm", lambda: None)
    with pytest.raises(SolcourseError, match="pip install nvidia-cuda-nvdisasm"):
        sol.sass(SCORE, X, Y)


@pytest.mark.nvvm
@pytest.mark.skipif(sys.platform == "win32", reason="a script is no program there")
@pytest.mark.parametrize(("script", "said"), [("exit 3", "nvdisasm failed"), ("", "did not run")])
def test_a_broken_disassembler_is_named(monkeypatch, tmp_path, script, said):
    tool = tmp_path / "nvdisasm"
    tool.write_text(f"#!/bin/sh\n{script}\n" if script else "")
    if script:
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(toolchain, "nvdisasm", lambda: str(tool))
    with pytest.raises(SolcourseError, match=said):
        sol.sass(SCORE, X, Y)


def test_sass_without_nvidias_compiler_says_what_to_install(monkeypatch):
    monkeypatch.setattr(toolchain, "installed", lambda: False)
    with pytest.raises(SolcourseError, match=r"pip install 'numba-cuda\[cu13\]'"):
        sol.sass(SCORE, X, Y)
    with pytest.raises(SolcourseError, match="not installed"):
        sol.profile(SCORE, X, Y.copy()).sass()


# ---------------------------------------------------------------------------------------------------------------- registers
@pytest.mark.nvvm
@pytest.mark.parametrize("name", ["copy", "saxpy_grid_stride", "transpose_tiled", "reduce_shuffle", "polynomial"])
@pytest.mark.parametrize("cc", ["7.5", "8.0", "9.0", "12.0"])
def test_compiling_gives_what_the_shipped_table_has(name, cc):
    case = cases()[name]
    arguments = case.make(np.random.default_rng(0), *case.shapes[0])
    kernel = frontend.compile_kernel(case.kernel, frontend.argument_types(case.kernel, arguments))
    shipped = next(row for row in table() if kernel.fingerprint in row["keys"])
    assert cc in TABLE_CCS
    assert toolchain.ptxas_usage(toolchain.nvvm_ptx(kernel.source, kernel.name, cc), cc) == (shipped["registers"][cc], 0)


@pytest.mark.nvvm
def test_max_registers_is_honoured_and_its_spills_are_told():
    report = sol.profile(crowded[128, 32], X, Y.copy())
    assert (report.registers, report.registers_source) == (24, "compiled")
    assert report.spill_bytes > 100
    assert any("slower than predicted" in advice.text for advice in report.advice if advice.kind == "spills")
    kernel = frontend.compile_kernel(crowded, frontend.argument_types(crowded, (X, Y)))
    free = toolchain.ptxas_usage(toolchain.nvvm_ptx(kernel.source, kernel.name, "8.0"), "8.0")
    assert free[0] > 40
    assert free[1] == 0


@pytest.mark.nvvm
def test_launch_bounds_reach_the_compiler():
    bounded = cuda.jit(launch_bounds=(1024, 2))(crowded.py_func)
    kernel = frontend.compile_kernel(bounded, frontend.argument_types(bounded, (X, Y)))
    ptx = toolchain.nvvm_ptx(kernel.source, kernel.name, "8.0")
    assert ".maxntid 1024" in ptx
    assert toolchain.ptxas_usage(ptx, "8.0")[0] <= 32  # 65,536 / 1,024 / 2


@pytest.mark.nvvm
def test_operators_that_numba_links_in_at_launch_are_no_obstacle():
    @cuda.jit
    def halves(x, y):  # x, y (n,) float16
        i = cuda.grid(1)
        y[i] = x[i] * y[i]

    x = np.ones(4096, np.float16)
    assert sol.profile(halves[128, 32], x, x.copy()).registers_source == "compiled"
    with pytest.raises(SolcourseError, match="nvJitLink failed"):
        sol.sass(halves[128, 32], x, x.copy())
