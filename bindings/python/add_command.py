#!/usr/bin/env python3
"""Puts the command `forkless` and its preloaded library into a wheel that maturin has built.

usage: add_command.py WHEEL COMMAND LIBRARY DIRECTORY

The command becomes a script of the wheel, so pip, uv and pipx put it beside the environment's
python, and no interpreter starts when it is called. The library goes to `lib` beside that
directory, where `forkless run` looks. Both are stripped ($STRIP, else strip).

The new wheel, in DIRECTORY, is tagged for the oldest glibc that all its files run with. An sdist
does not have the command: a package built from it would take minutes, and most of the workspace.
"""

import base64
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile

# Installed, of all files together.
MOST_BYTES = 20_000_000
# The oldest glibc with a tag (PEP 600) that Rust's standard library runs with.
OLDEST_GLIBC = 17


def stripped(file, directory):
    """The file without its symbols and debugging information."""
    new = os.path.join(directory, os.path.basename(file))
    subprocess.run([os.environ.get("STRIP", "strip"), "-o", new, file], check=True)
    return new


def needed(file):
    """What the loader needs for a file: the minor version of glibc, and whether it is musl's."""
    read = ["readelf", "--wide", "--dynamic", "--version-info", file]
    english = {**os.environ, "LC_ALL": "C"}
    said = subprocess.run(read, check=True, stdout=subprocess.PIPE, env=english)
    text = said.stdout.decode("utf-8", "replace")
    versions = [int(minor) for minor in re.findall(r"Name: GLIBC_2\.(\d+)", text)]
    # musl's goes by either name, and takes itself for both.
    return max(versions, default=0), re.search(r"\[libc\.(so|musl-\w+\.so\.1)\]", text) is not None


def platform(architecture, files):
    """The platform tag for files of an architecture."""
    glibc, musl = OLDEST_GLIBC, False
    for file in files:
        its_glibc, its_musl = needed(file)
        glibc, musl = max(glibc, its_glibc), musl or its_musl
    if musl:
        return "musllinux_1_2_" + architecture
    return "manylinux_2_%d_%s" % (glibc, architecture)


def record_line(name, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return "%s,sha256=%s,%d" % (name, digest, len(content))


def main(wheel, command, library, directory):
    distribution, version, python, abi, tag = os.path.basename(wheel)[: -len(".whl")].split("-")
    # Maturin's, with several names for one platform: manylinux2014_x86_64.manylinux_2_17_x86_64.
    architecture = re.fullmatch(r"(?:many|musl)?linux(?:2014|_\d+_\d+)?_(\w+)", tag.split(".")[0])
    if architecture is None:
        sys.exit("add_command.py: %s: its name has no architecture of Linux" % wheel)
    named = "%s-%s" % (distribution, version)
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(wheel) as source:
        command = stripped(command, scratch)
        library = stripped(library, scratch)
        extensions = [name for name in source.namelist() if name.endswith(".so")]
        extracted = [source.extract(name, scratch + "/wheel") for name in extensions]
        new_tag = platform(architecture[1], [command, library, *extracted])
        name = "-".join((distribution, version, python, abi, new_tag)) + ".whl"
        written = os.path.join(directory, name)
        record, total = [], 0
        with zipfile.ZipFile(written + ".new", "w", zipfile.ZIP_DEFLATED) as target:

            def put(info, content):
                nonlocal total
                info.compress_type = zipfile.ZIP_DEFLATED
                target.writestr(info, content)
                record.append(record_line(info.filename, content))
                total += len(content)

            recorded = named + ".dist-info/RECORD"
            for info in source.infolist():
                content = source.read(info)
                if info.filename == recorded:
                    continue
                if info.filename == named + ".dist-info/WHEEL":
                    line = "Tag: %s-%s-%s\n" % (python, abi, new_tag)
                    lines = [text for text in content.splitlines(True) if text[:5] != b"Tag: "]
                    content = b"".join([*lines, line.encode()])
                put(info, content)
            # The wheel's own time, so that the same files give the same wheel.
            time = source.infolist()[0].date_time
            for path, file in (
                ("scripts/forkless", command),
                ("data/lib/libforkless-run.so", library),
            ):
                info = zipfile.ZipInfo("%s.data/%s" % (named, path), time)
                info.external_attr = 0o100755 << 16
                with open(file, "rb") as content:
                    put(info, content.read())
            info = zipfile.ZipInfo(recorded, time)
            info.external_attr = 0o100644 << 16
            target.writestr(info, "\n".join([*record, recorded + ",,"]) + "\n")
    if total > MOST_BYTES:
        os.remove(written + ".new")
        sys.exit("add_command.py: %d bytes installed, more than %d" % (total, MOST_BYTES))
    os.replace(written + ".new", written)
    print("%s: %.1f MB, installed %.1f MB" % (written, os.path.getsize(written) / 1e6, total / 1e6))


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
