"""The build: what it refuses, what it decides, and that the result is loaded and works."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
import tarfile
from functools import partial
from pathlib import Path

import pytest

from cffi_build import backend, cpu_flags, declarations, llama_source, recipe

PORTABLE = {"libggml", "base", "cpu", "libllama", "libmtmd"}  # libraries of every build; GPU backends are not looked at


# --- the pinned source ---------------------------------------------------------------------------------------------------------------


def small_tree(root: Path) -> dict[str, str]:
    """Two needed files and one that nobody needs; returns the manifest."""
    for name, text in {"include/llama.h": "int a;\n", "src/llama.cpp": "int b;\n", "docs/readme.md": "c\n"}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return llama_source.digest_tree(root)


def test_only_needed_files_are_in_the_manifest(tmp_path: Path) -> None:
    """Build: a changed file is only held against a tree if the build would read it."""
    assert set(small_tree(tmp_path)) == {"include/llama.h", "src/llama.cpp"}
    manifest = llama_source.read_manifest()
    assert {"include/llama.h", "ggml/src/ggml-cuda/ggml-cuda.cu", "tools/mtmd/clip.cpp"} <= set(manifest)
    assert all(llama_source.is_needed(name) and len(digest) == 64 for name, digest in manifest.items())


def test_pinned_tree_is_accepted_with_further_files(tmp_path: Path) -> None:
    """Build: LSM_LLAMA_CPP_DIR may be a working copy with files of its own."""
    manifest = small_tree(tmp_path)
    (tmp_path / "src/notes.txt").write_text("mine")
    llama_source.check_tree(tmp_path, manifest)


@pytest.mark.parametrize(("damage", "complaint"), [("change", r"src/llama\.cpp \(differs\)"), ("remove", r"src/llama\.cpp \(missing\)")])
def test_other_version_is_refused_by_file_name(tmp_path: Path, damage: str, complaint: str) -> None:
    """Build: a source tree of another version is refused, and the message names the file, the pin and the remedy."""
    manifest = small_tree(tmp_path)
    if damage == "change":
        (tmp_path / "src/llama.cpp").write_text("int other;\n")
    else:
        (tmp_path / "src/llama.cpp").unlink()
    with pytest.raises(llama_source.SourceError, match=complaint) as error:
        llama_source.check_tree(tmp_path, manifest)
    assert llama_source.pinned_requirement()[2] in str(error.value)
    assert "unset LSM_LLAMA_CPP_DIR" in str(error.value)


def test_missing_local_tree_is_refused(tmp_path: Path) -> None:
    """Build: LSM_LLAMA_CPP_DIR that does not exist is named in the message, and nothing is fetched instead."""
    with pytest.raises(llama_source.SourceError, match="LSM_LLAMA_CPP_DIR=.*nowhere: no such directory"):
        llama_source.locate(tmp_path, {"LSM_LLAMA_CPP_DIR": str(tmp_path / "nowhere")})


def archive_of(tree: Path, archive: Path) -> str:
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tree, f"{archive.name.removesuffix('.tar.gz')}/{llama_source.MEMBER_ROOT}")
    return hashlib.sha256(archive.read_bytes()).hexdigest()


def test_archive_is_unpacked_without_what_nobody_needs(tmp_path: Path) -> None:
    """Build: only the needed folders of the archive are unpacked."""
    small_tree(tmp_path / "tree")
    sha256 = archive_of(tmp_path / "tree", tmp_path / "llama-1.0.tar.gz")
    llama_source.unpack(tmp_path / "llama-1.0.tar.gz", sha256, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").rglob("*.*")) == ["llama.cpp", "llama.h"]


def test_archive_with_another_hash_is_refused(tmp_path: Path) -> None:
    """Build: an archive that is not the pinned one is not unpacked; the message shows both hashes."""
    small_tree(tmp_path / "tree")
    found = archive_of(tmp_path / "tree", tmp_path / "llama-1.0.tar.gz")
    with pytest.raises(llama_source.SourceError, match=f"sha256 is {found}, but llama_cpp.lock pins {'0' * 64}"):
        llama_source.unpack(tmp_path / "llama-1.0.tar.gz", "0" * 64, tmp_path / "out")
    assert not (tmp_path / "out").exists()


HOOKS = {  # of pyproject_hooks since 1.3, since 1.0 (pip 23), and before
    "_PYPROJECT_HOOKS_BUILD_BACKEND": "cffi_build.backend",
    "_PYPROJECT_HOOKS_BACKEND_PATH_JSON": '["/nowhere"]',
    "_PYPROJECT_HOOKS_BACKEND_PATH": "/nowhere",
    "PEP517_BUILD_BACKEND": "cffi_build.backend",
    "PEP517_BACKEND_PATH": "/nowhere",
}


def test_inner_pip_does_not_hear_of_the_outer_one() -> None:
    """Build: what pip told our backend about itself is not passed on; index, proxy and the rest of the environment are."""
    kept = {"PIP_INDEX_URL": "https://index", "https_proxy": "proxy", "PATH": "/bin", "PYTHONPATH": "/overlay"}
    assert llama_source.pip_environment(kept | HOOKS) == kept


@pytest.mark.slow
def test_pinned_archive_is_fetched_from_within_a_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Build: a real pip fetches a source archive whose own backend it has to ask, in the environment of a build without isolation."""
    folder = tmp_path / "llama-1.0"
    small_tree(folder / llama_source.MEMBER_ROOT)
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "scikit_build_core.build"\n[project]\nname = "llama"\nversion = "1.0"\n'
    )
    (folder / "CMakeLists.txt").touch()
    (folder / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: llama\nVersion: 1.0\n")
    archive = tmp_path / "llama-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, folder.name)
    lock = tmp_path / "lock"
    lock.write_text(f"# llama.cpp@0c1e\nllama==1.0 --hash=sha256:{hashlib.sha256(archive.read_bytes()).hexdigest()}\n")
    monkeypatch.setattr(llama_source, "LOCK", lock)
    monkeypatch.setattr(llama_source, "pinned_requirement", partial(llama_source.pinned_requirement, lock))
    environ = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"}
    for name, value in (environ | HOOKS).items():
        monkeypatch.setenv(name, value)
    llama_source.fetch(tmp_path / "out")
    assert (tmp_path / "out" / "include" / "llama.h").read_text() == "int a;\n"


# --- instruction sets ----------------------------------------------------------------------------------------------------------------


def test_extensions_are_not_probed_where_avx512_does_not_run() -> None:
    """Build: a feature is used only if its instruction ran; extensions of AVX-512 only on top of AVX-512."""
    asked: list[tuple[str, ...]] = []

    def processor_without_avx512(flags: tuple[str, ...]) -> bool:
        asked.append(flags)
        return "-mavx512f" not in flags

    found = cpu_flags.usable_features(processor_without_avx512)  # type: ignore[arg-type]
    assert found == ["SSE42", "BMI2", "AVX", "F16C", "FMA", "AVX2", "AVX_VNNI"]
    assert ("-mavx512vnni",) not in asked


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ({}, ["SSE42", "AVX2", "AVX512", "AVX512_VNNI"]),
        ({"GGML_AVX512": "OFF"}, ["SSE42", "AVX2"]),
        ({"GGML_AVX512_VNNI": "off"}, ["SSE42", "AVX2", "AVX512"]),
        ({"GGML_FMA": "1"}, ["SSE42", "FMA", "AVX2", "AVX512", "AVX512_VNNI"]),
    ],
)
def test_the_users_word_about_features_is_last(wish: dict[str, str], expected: list[str]) -> None:
    """Build: CMAKE_ARGS switches features off and on; without AVX-512 its extensions go too."""
    assert cpu_flags.requested_features(["SSE42", "AVX2", "AVX512", "AVX512_VNNI"], wish) == expected


def test_amx_is_always_off() -> None:
    """Build: AMX is never switched on, whatever the processor advertises."""
    options = cpu_flags.cmake_options(cpu_flags.FEATURES)
    assert [options[f"GGML_{name}"] for name in cpu_flags.NEVER] == ["OFF", "OFF", "OFF"]
    assert options["GGML_AVX512"] == "ON"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the self-test holds instructions of x86-64 only")
def test_self_test_holds_one_instruction_of_each_feature(tmp_path: Path) -> None:
    """Build: the self-test built for every feature contains an instruction of every feature, so that none goes untested."""
    program = tmp_path / "self-test"
    assert cpu_flags.build_self_test(["cc"], cpu_flags.compiler_flags(cpu_flags.FEATURES), program)
    listing = subprocess.run(["objdump", "-d", "--disassemble=main", program], capture_output=True, text=True, check=True).stdout
    mnemonics = "pcmpgtq pdep vaddps vcvtph2ps vfmadd132ps vpaddd vpdpbusd vpconflictd vprold vpmullq vpaddb vpermb vdpbf16ps".split()
    assert [name for name in mnemonics if name not in listing] == []
    assert listing.count("vpdpbusd") == 2  # AVX-VNNI and AVX512-VNNI encode it differently


# --- recipe --------------------------------------------------------------------------------------------------------------------------


def test_cmake_arguments_come_from_the_environment_and_from_pip() -> None:
    """Build: CMAKE_ARGS, -C cmake.args and -C cmake.define.NAME all reach llama.cpp."""
    settings = {"cmake.args": "-DGGML_BLAS=ON;-DGGML_BLAS_VENDOR=OpenBLAS", "cmake.define.GGML_RPC": "ON", "build.verbose": "true"}
    arguments = backend.cmake_arguments(settings, {"CMAKE_ARGS": "-DGGML_CUDA=on -D CMAKE_CXX_FLAGS='-g -O2'"})
    options, rest = recipe.parse_cmake_arguments([*arguments, "-Wno-dev"])
    assert options == {
        "GGML_CUDA": "on",
        "CMAKE_CXX_FLAGS": "-g -O2",
        "GGML_BLAS": "ON",
        "GGML_BLAS_VENDOR": "OpenBLAS",
        "GGML_RPC": "ON",
    }
    assert rest == ["-Wno-dev"]


@pytest.mark.parametrize("argument", ["-DGGML_NATIVE=ON", "-DBUILD_SHARED_LIBS:BOOL=off", "-DGGML_BACKEND_DL=1", "-DGGML_AMX_INT8=ON"])
def test_options_that_cannot_work_are_refused(argument: str) -> None:
    """Build: an option that gives a library which crashes or is not found is refused with what to do instead."""
    with pytest.raises(recipe.BuildRefused, match="CMAKE_ARGS: .* is refused: .+"):
        recipe.parse_cmake_arguments([argument])


def test_harmless_forms_of_the_same_options_pass() -> None:
    """Build: saying what is the case anyway is not refused."""
    assert recipe.parse_cmake_arguments(["-DGGML_NATIVE=OFF", "-DBUILD_SHARED_LIBS=ON"])[1] == []


def test_option_without_value_is_refused() -> None:
    """Build: a typing mistake in CMAKE_ARGS is named."""
    with pytest.raises(recipe.BuildRefused, match="'-DGGML_CUDA' has no value"):
        recipe.parse_cmake_arguments(["-DGGML_CUDA"])


def test_open_quotation_mark_is_refused() -> None:
    """Build: CMAKE_ARGS that no shell would take either is a sentence."""
    with pytest.raises(recipe.BuildRefused, match='CMAKE_ARGS=-DA=1 "unclosed: No closing quotation. Close'):
        backend.cmake_arguments({}, {"CMAKE_ARGS": '-DA=1 "unclosed'})


@pytest.mark.parametrize("hook", backend.__all__)
def test_every_hook_refuses_an_open_quotation_mark(hook: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Build: whichever hook pip calls first, before scikit-build-core reads CMAKE_ARGS itself."""
    monkeypatch.setenv("CMAKE_ARGS", '"unclosed')
    with pytest.raises(SystemExit, match="lsm: CMAKE_ARGS="):
        getattr(backend, hook)(*([] if hook.startswith("get_requires") else [str(tmp_path)]))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nonsense"], "'nonsense' is not an option of CMake"),
        (["-DGGML_CUDA=on", "GGML_BLAS=on"], "'GGML_BLAS=on' is not an option of CMake; write -DNAME=VALUE"),
        (["-Wno-dev", "x64"], "'x64' is not an option"),
        (["-G"], "'-G' has no value"),
        (["-G", "-DGGML_CUDA=on"], "'-G' has no value"),
        (["-B", "elsewhere"], "'-B' is refused: lsm chooses"),
    ],
)
def test_words_that_cmake_would_misread_are_refused_by_name(arguments: list[str], complaint: str) -> None:
    """Build: CMake takes a bare word for another source folder and warns at most."""
    with pytest.raises(recipe.BuildRefused, match=complaint):
        recipe.parse_cmake_arguments(arguments)


def test_options_with_a_value_of_their_own_pass() -> None:
    """Build: -G Ninja is two words, and -GNinja is one."""
    arguments = ["-G", "Ninja", "--toolchain", "t.cmake", "-GNinja", "--fresh", "-Wno-dev"]
    assert recipe.parse_cmake_arguments(arguments) == ({}, arguments)


def example_recipe() -> recipe.Recipe:
    return recipe.Recipe("0c1e", "d1", {"GGML_CUDA": "OFF"}, ("AVX2",), (), "gcc 12", {})


@pytest.mark.parametrize(
    "change",
    [
        {"source_digest": "d2"},
        {"options": {"GGML_CUDA": "ON"}},
        {"features": ()},
        {"compiler": "gcc 13"},
        {"environment": {"CFLAGS": "-g"}},
        {"extra_arguments": ("-Wno-dev",)},
    ],
)
def test_key_follows_everything_that_decides_the_result(change: dict[str, object]) -> None:
    """Build: the cache is keyed by source, flags and compiler; equal recipes share a key."""
    assert example_recipe().key == example_recipe().key
    assert dataclasses.replace(example_recipe(), **change).key != example_recipe().key  # type: ignore[arg-type]


def test_missing_compiler_is_refused_with_the_remedy() -> None:
    """Build: a machine without a C compiler is told what to install."""
    with pytest.raises(recipe.BuildRefused, match="no C compiler: 'no-such-cc' does not run .* Install gcc"):
        recipe.make_recipe([], {"CC": "no-such-cc"})


# --- declarations --------------------------------------------------------------------------------------------------------------------


def test_declarations_keep_types_and_wanted_functions(tmp_path: Path) -> None:
    """Build: types stay, functions are chosen by name, bodies and what system headers bring are dropped, macros become constants."""
    (tmp_path / "lsm_example.h").write_text(
        '#include <stdio.h>\n#define LSM_E_SOURCE_CHANGED -3\n#define LSM_TEXT "x"\n'
        "struct lsm_pair { int left[2 * sizeof(int)]; };\n"
        '__attribute__((deprecated("old"))) extern int lsm_take(struct lsm_pair *, void (*call)(int));\n'
        "static inline int lsm_inline(int x) { if (x) { return 1; } return 0; }\n"
        "int other_function(void);\n"
    )
    text = declarations.select(declarations.expand(["lsm_example.h"], [tmp_path], ["cc"]))
    assert text.splitlines() == ["struct lsm_pair { int left[...]; };", "int lsm_take(struct lsm_pair *, void (*call)(int));"]
    assert declarations.integer_constants(["lsm_example.h"], [tmp_path], ["cc"]) == ["#define LSM_E_SOURCE_CHANGED ..."]


# --- the result ----------------------------------------------------------------------------------------------------------------------


def test_compiled_module_answers() -> None:
    """Build: one constant, one call, and a function of each library and of the shim."""
    from lsm.native.library import ffi, lib

    assert lib.LLAMA_TOKEN_NULL == -1
    assert ffi.string(lib.ggml_type_name(lib.GGML_TYPE_Q4_K)) == b"q4_K"
    assert lib.llama_max_devices() >= 1
    assert ffi.string(lib.mtmd_default_marker())
    for name in ("llama_decode", "mtmd_tokenize", "ggml_backend_dev_memory", "lsm_log_start"):
        assert callable(getattr(lib, name))


def test_build_info_names_versions_features_and_devices() -> None:
    """Build: what was built can be asked for, for `doctor` and bug reports."""
    from lsm.native.library import build_info

    info = build_info()
    assert info["llama_cpp_commit"] == llama_source.pinned_requirement()[2]
    assert info["llama_cpp_version"].startswith("0.")
    cpu = next(device for device in info["devices"] if device["type"] == "cpu")
    assert 0 < cpu["memory_free_bytes"] <= cpu["memory_total_bytes"]
    assert str(Path.home()) not in str({name: value for name, value in info.items() if name != "devices"})


def test_each_library_is_installed_once_and_finds_its_neighbours() -> None:
    """Build: no duplicates and no links (wheels hold none), each file named as its SONAME, RUNPATH relative to itself."""
    from lsm.native.library import library_directory

    files = sorted(library_directory().glob("lib*"))
    assert {path.name.split(".so")[0] for path in files} >= {"libllama", "libmtmd", "libggml", "libggml-base", "libggml-cpu"}
    assert len({path.name.split(".so")[0] for path in files}) == len(files)
    for path in files:
        dynamic = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
        assert not path.is_symlink()
        assert f"Library soname: [{path.name}]" in dynamic
        assert "Library runpath: [$ORIGIN]" in dynamic


def test_baseline_backend_stands_in_under_the_same_soname() -> None:
    """Build: the second CPU backend has the SONAME of the first and uses the same libggml-base."""
    from lsm.native.library import library_directory

    if os.uname().machine != "x86_64":
        pytest.skip("built for x86-64 only")
    (usual,) = library_directory().glob("libggml-cpu.so*")
    (base,) = library_directory().glob("libggml-base.so*")
    dynamic = subprocess.run(
        ["readelf", "-d", library_directory() / "baseline" / usual.name], capture_output=True, text=True, check=True
    ).stdout
    assert f"Library soname: [{usual.name}]" in dynamic
    assert f"Shared library: [{base.name}]" in dynamic
    assert "Library runpath: [$ORIGIN/..]" in dynamic


@pytest.mark.slow
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="instruction sets of x86-64")
def test_only_the_usual_cpu_backend_needs_a_newer_processor() -> None:
    """Build: what is mapped on every processor holds no AVX instruction; that the usual backend does shows that the search finds them."""
    from lsm.native.library import library_directory

    libraries = [path for path in library_directory().rglob("lib*.so*") if path.name.split(".")[0].removeprefix("libggml-") in PORTABLE]
    assert len(libraries) == 6
    using_avx = []
    for path in libraries:
        listing = subprocess.run(["objdump", "-d", path], capture_output=True, text=True, check=True).stdout
        if "%ymm" in listing or "%zmm" in listing:
            using_avx.append(path.relative_to(library_directory()).name)
    assert using_avx == [next(library_directory().glob("libggml-cpu.so*")).name]
