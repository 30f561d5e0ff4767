"""plugins/nccl/nccl_api.h and the exports of libnccl.so.2, beside NVIDIA's headers and an installed torch."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from paceline.door import nccl_library

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = nccl_library()
COMPILER = os.environ.get("CXX", "g++-12")


def words(text: str) -> list[str]:
    return text.split()


# What torch 2.14 for CUDA 13 calls of NCCL; earlier ones call fewer.
TORCH = words("""
ncclAllGather ncclAllReduce ncclAlltoAll ncclBcast ncclBroadcast ncclCommAbort ncclCommCount ncclCommDeregister
ncclCommDestroy ncclCommFinalize ncclCommGetAsyncError ncclCommGetUniqueId ncclCommGrow ncclCommInitAll
ncclCommInitRank ncclCommInitRankConfig ncclCommInitRankScalable ncclCommMemStats ncclCommRegister ncclCommResume
ncclCommRevoke ncclCommShrink ncclCommSplit ncclCommSuspend ncclCommUserRank ncclCommWindowDeregister
ncclCommWindowRegister ncclDevCommCreate ncclDevCommDestroy ncclGather ncclGetErrorString ncclGetLastError
ncclGetLsaMultimemDevicePointer ncclGetPeerDevicePointer ncclGetUniqueId ncclGetVersion ncclGroupEnd
ncclGroupSimulateEnd ncclGroupStart ncclMemAlloc ncclMemFree ncclPutSignal ncclRecv ncclRedOpCreatePreMulSum
ncclRedOpDestroy ncclReduce ncclReduceScatter ncclSend ncclSignal ncclWaitSignal ncclWinGetUserPtr
""")

CONSTANTS = words("""
ncclSuccess ncclUnhandledCudaError ncclSystemError ncclInternalError ncclInvalidArgument ncclInvalidUsage
ncclRemoteError ncclInProgress ncclInt8 ncclUint8 ncclInt32 ncclUint32 ncclInt64 ncclUint64 ncclFloat16 ncclFloat32
ncclFloat64 ncclBfloat16 ncclFloat8e4m3 ncclFloat8e5m2 ncclNumTypes ncclSum ncclProd ncclMax ncclMin ncclAvg ncclNumOps
ncclMaxRedOp ncclScalarDevice ncclScalarHostImmediate NCCL_UNIQUE_ID_BYTES NCCL_CONFIG_UNDEF_INT NCCL_SPLIT_NOCOLOR
NCCL_SHRINK_DEFAULT NCCL_SHRINK_ABORT
""")
SINCE_29 = ["ncclStatGpuMemSuspend", "ncclStatGpuMemSuspended", "ncclStatGpuMemPersist", "ncclStatGpuMemTotal"]
SINCE_30 = ["ncclTimeout", "ncclNumResults", "NCCL_REVOKE_DEFAULT"]
STRUCTS = {
    "ncclUniqueId": ["internal"],
    "ncclConfig_t": words("""
        size magic version blocking cgaClusterSize minCTAs maxCTAs netName splitShare trafficClass commName
        collnetEnable CTAPolicy shrinkShare nvlsCTAs nChannelsPerNetPeer nvlinkCentricSched"""),
    "ncclSimInfo_t": words("size magic version estimatedTime"),
    "ncclTeam_t": words("nRanks rank stride"),
    "ncclMultimemHandle_t": ["mcBasePtr"],
}
STRUCTS_29 = {"ncclConfig_t": ["graphUsageMode", "numRmaCtx"], "ncclWaitSignalDesc_t": words("opCnt peer sigIdx ctx")}
STRUCTS_30 = {"ncclConfig_t": ["maxP2pPeers", "graphStreamOrdering"]}


def site_packages(package: str) -> Path | None:
    """Where a namespace package of NVIDIA's lies, or None."""
    try:
        found = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return None
    return Path(next(iter(found.submodule_search_locations))) if found and found.submodule_search_locations else None


CUDA = site_packages("nvidia.cu13")
NCCL = site_packages("nvidia.nccl")
needs_headers = pytest.mark.skipif(
    CUDA is None or NCCL is None or not (CUDA / "include/crt/host_config.h").exists(),
    reason="needs nvidia-cuda-runtime, nvidia-cuda-crt and nvidia-nccl-cu13 of .venv",
)


def functions_of_ours() -> dict[str, int]:
    """Names in the lists of nccl_api.h, with the version that each is declared for."""
    text = (ROOT / "plugins/nccl/nccl_api.h").read_text()
    return {name: int(since) for since, name in re.findall(r"^  X\((\d+), [^,]+, (nccl\w+),", text, re.MULTILINE)}


def functions_of_header(folder: Path) -> set[str]:
    """Functions that a host program can call: all of nccl.h, and nccl_device's `__host__` ones of Linux."""
    text = (folder / "nccl.h").read_text()
    names = set(re.findall(r"^\s*(?:ncclResult_t|const char\s*\*|void)\s+(nccl\w+)\s*\(", text, re.MULTILINE))
    for page in (folder / "nccl_device").glob("*.h"):
        if page.name != "gin_win_stub.h":
            names |= set(re.findall(r"NCCL_EXTERN_C __host__\s+[\w ]+?\s(nccl\w+)\s*\(", page.read_text()))
    return names


def version_of(folder: Path) -> int:
    match = re.search(r"#define NCCL_VERSION_CODE (\d+)", (folder / "nccl.h").read_text())
    assert match
    return int(match[1])


def program(version: int, functions: list[str]) -> str:
    """C++ that prints what a declaration is: types of functions, values of constants, layout of structs."""
    structs = {name: list(fields) for name, fields in STRUCTS.items()}
    for since, more in ((22900, STRUCTS_29), (23000, STRUCTS_30)):
        for name, fields in more.items() if version >= since else ():
            structs.setdefault(name, []).extend(fields)
    constants = CONSTANTS + (SINCE_29 if version >= 22900 else []) + (SINCE_30 if version >= 23000 else [])
    lines = [f'std::printf("{name} %lld\\n", static_cast<long long>({name}));' for name in constants]
    for name, fields in structs.items():
        lines += [
            f'std::printf("{name}.{field} %zu %zu %s\\n", offsetof({name}, {field}), sizeof({name}::{field}), '
            f"typeid(decltype({name}::{field})).name());"
            for field in fields
        ]
    # The whole of a struct: in its own version, for those after it have more.
    lines += [f'std::printf("{name} %zu\\n", sizeof({name}));' for name in structs if name != "ncclConfig_t"]
    if version >= 23000:
        lines.append('std::printf("ncclConfig_t %zu\\n", sizeof(ncclConfig_t));')
    lines += [
        f'std::printf("{name} %s\\n", typeid(static_cast<decltype(one({name}))>(nullptr)).name());'
        for name in functions
        if name not in OVERLOADED | UNDECLARED
    ]
    body = "\n  ".join(lines)
    return (
        "#include <cstddef>\n#include <cstdio>\n#include <typeinfo>\n"
        "template <class R, class... A> R (*one(R (*)(A...)))(A...);\n"
        f"int main() {{\n  {body}\n}}\n"
    )


# The library exports them; its headers for Linux do not declare them, or under conditions.
UNDECLARED = {"ncclResetDebugInit", "ncclGinOutboxCreateRequirement", "ncclGinInboxA2ACreateRequirement"}
# Those with a device twin of the same name in NVIDIA's headers: only their exports are compared.
OVERLOADED = {"ncclTeamWorld", "ncclTeamLsa", "ncclTeamRail", "ncclTeamRankToWorld", "ncclTeamRankToLsa"}


REQUIREMENTS = """
#include <cstddef>
#include <nccl.h>
#include <nccl_device.h>
#include "nccl/requirements_layout.h"
constexpr auto layout = paceline::nccl::requirements_layout(NCCL_VERSION_CODE);
using Whole = ncclDevCommRequirements;
static_assert(layout.size == 0 || layout.size == sizeof(Whole));
static_assert(layout.lists == offsetof(Whole, resourceRequirementsList));
static_assert(layout.lists + sizeof(void*) == offsetof(Whole, teamRequirementsList));
static_assert(layout.resource == sizeof(ncclDevResourceRequirements) && layout.team == sizeof(ncclTeamRequirements));
static_assert(offsetof(ncclDevResourceRequirements, next) == 0 && offsetof(ncclTeamRequirements, next) == 0);
int main() {}
"""


def printed(where: Path, name: str, source: str, *options: str) -> list[str]:
    file = where / f"{name}.cc"
    file.write_text(source)
    subprocess.run([COMPILER, "-std=c++20", "-w", *options, str(file), "-o", str(where / name)], check=True)
    return subprocess.run([str(where / name)], capture_output=True, text=True, check=True).stdout.splitlines()


def compare_with(folder: Path, where: Path) -> None:
    version = version_of(folder)
    ours = functions_of_ours()
    theirs = functions_of_header(folder)
    assert {name for name, since in ours.items() if since <= version} >= theirs
    assert {name for name, since in ours.items() if since <= version // 100 * 100} <= theirs | UNDECLARED

    source = program(version, sorted(theirs))
    assert CUDA is not None
    real = printed(
        where, "real", f"#include <nccl.h>\n#include <nccl_device.h>\n{source}", f"-I{folder}", f"-I{CUDA / 'include'}"
    )
    own = printed(where, "own", f'#include "nccl/nccl_api.h"\n{source}', f"-I{ROOT / 'plugins'}")
    # The tag of the configuration's struct carries a version that no program sees.
    assert [re.sub(r"\d+ncclConfig_v\d+", "ncclConfig", line) for line in own] == [
        re.sub(r"\d+ncclConfig_v\d+", "ncclConfig", line) for line in real
    ]
    assert len(own) > 100
    printed(where, "layout", REQUIREMENTS, f"-I{folder}", f"-I{CUDA / 'include'}", f"-I{ROOT / 'plugins'}")


@needs_headers
def test_declarations_are_those_of_the_installed_header(tmp_path: Path) -> None:
    assert NCCL is not None
    compare_with(NCCL / "include", tmp_path)


@pytest.fixture(scope="module", params=["2.28", "2.29", "2.30"])
def downloaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The newest wheel of a version, its headers unpacked."""
    where = tmp_path_factory.mktemp(request.param)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(where)]
    subprocess.run([*pip, f"nvidia-nccl-cu13=={request.param}.*"], check=True)
    (wheel,) = where.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(where, [name for name in archive.namelist() if name.startswith("nvidia/nccl/include/")])
    wheel.unlink()
    yield where / "nvidia/nccl/include"


@pytest.mark.long
@needs_headers
def test_declarations_are_those_of_every_version(downloaded: Path, tmp_path: Path) -> None:
    compare_with(downloaded, tmp_path)


def symbols(file: Path, *options: str) -> set[str]:
    listing = subprocess.run(["nm", "-D", *options, str(file)], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in listing.splitlines()}


def test_every_function_is_exported_with_its_twin_and_nothing_else() -> None:
    ours = set(functions_of_ours())
    assert len(ours) > 80
    assert symbols(LIBRARY, "--defined-only") == ours | {f"p{name}" for name in ours} | {"paceNcclDescribe"}


def test_the_name_for_the_loader_is_nccls() -> None:
    dynamic = subprocess.run(["readelf", "-d", str(LIBRARY)], capture_output=True, text=True, check=True).stdout
    assert "Library soname: [libnccl.so.2]" in dynamic


def test_what_torch_calls_is_there() -> None:
    assert set(TORCH) <= symbols(LIBRARY, "--defined-only")


def test_what_the_installed_torch_calls_is_there() -> None:
    torch = site_packages("torch")
    libraries = [] if torch is None else sorted((torch / "lib").glob("libtorch*.so"))
    wanted = {name for file in libraries for name in symbols(file, "--undefined-only") if name.startswith("nccl")}
    if not wanted:
        pytest.skip("no torch with CUDA is installed")
    assert wanted <= symbols(LIBRARY, "--defined-only")


@pytest.mark.skipif(NCCL is None, reason="needs nvidia-nccl-cu13 of .venv")
def test_everything_that_the_real_library_exports_is_exported() -> None:
    assert NCCL is not None
    theirs = {name for name in symbols(NCCL / "lib/libnccl.so.2", "--defined-only") if re.match("p?nccl[A-Z]", name)}
    # Not in any header: NCCL's own libraries call it.
    assert theirs - {"ncclResetDebugInitInternal"} <= symbols(LIBRARY, "--defined-only")
