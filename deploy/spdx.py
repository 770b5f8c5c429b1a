#!/usr/bin/env python3
"""Lists what is inside of a bundle as SPDX 2.3 JSON, on stdout: every file with its checksums, and the Debian packages that libraries are of.

    spdx.py BUNDLE COMMIT CREATED_UNIX_S LIBRARY...    # LIBRARY: where each file of BUNDLE/lib was copied from

Licences are those of "Files: *" in a package's debian/copyright. Names that are no SPDX identifiers, and packages without a machine-readable file, become
LicenseRefs with the whole text. The same input gives the same bytes.
"""

import datetime
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import uuid

# Short names of Debian's machine-readable copyright files, as SPDX spells them.
IDENTIFIERS = {
    "apache-2.0": "Apache-2.0",
    "bsd-2-clause": "BSD-2-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "bsl-1.0": "BSL-1.0",
    "expat": "MIT",
    "isc": "ISC",
    "lgpl-2.1": "LGPL-2.1-only",
    "lgpl-2.1+": "LGPL-2.1-or-later",
    "mit": "MIT",
    "zlib": "Zlib",
}


def reference(kind, text):
    return f"SPDXRef-{kind}-" + re.sub(r"[^A-Za-z0-9.-]", lambda c: f"-{ord(c.group()):x}-", text)


def packages_of(libraries):
    """Debian's (name, version, architecture, source) of each file that dpkg knows, by its name."""
    paths = {}  # dpkg knows a file by one of its names: /lib is a link to /usr/lib
    for library in libraries:
        for path in (str(library), str(library.resolve())):
            paths[path] = paths[path.removeprefix("/usr")] = library.name
    found = subprocess.run(["dpkg-query", "--search", *paths], capture_output=True, text=True).stdout
    names = {paths[path]: owner.split(",")[0] for owner, path in (line.split(": ", 1) for line in found.splitlines()) if path in paths}
    shown = {}
    for name in set(names.values()):
        text = subprocess.run(["dpkg-query", "--show", "--showformat", "${Package}\n${Version}\n${Architecture}\n${source:Package}", name],
                              capture_output=True, text=True, check=True).stdout
        shown[name] = tuple(text.split("\n"))
    return {library: shown[name] for library, name in names.items()}


def licence_of(package):
    """(SPDX expression, text of its own if the expression is a LicenseRef)."""
    try:
        text = pathlib.Path("/usr/share/doc", package, "copyright").read_text(errors="replace")
    except OSError:
        return "NOASSERTION", None
    stanza = next((part for part in re.split(r"\n\s*\n", text) if re.search(r"^Files:\s*\*\s*$", part, re.M)), "")
    found = re.search(r"^License:\s*(\S+)\s*$", stanza, re.M)
    identifier = IDENTIFIERS.get(found[1].lower()) if found else None
    return (identifier, None) if identifier else ("LicenseRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", package), text)


def list_of(bundle, commit, created_s, libraries):
    root = reference("Package", bundle.name)
    packages, files, texts, relationships = {}, [], {}, []
    owners = packages_of(libraries)
    for path in sorted(path for path in bundle.rglob("*") if path.is_file()):
        name = str(path.relative_to(bundle))
        data = path.read_bytes()
        files.append({
            "SPDXID": reference("File", name),
            "fileName": f"./{name}",
            "checksums": [{"algorithm": algorithm, "checksumValue": hashlib.new(algorithm, data).hexdigest()} for algorithm in ("SHA1", "SHA256")],
            "licenseConcluded": "NOASSERTION",
            "copyrightText": "NOASSERTION",
        })
        relationships.append((root, "CONTAINS", files[-1]["SPDXID"]))
        owner = owners.get(path.name) if path.parent.name == "lib" else None
        if owner:
            package, version, architecture, source = owner
            licence, text = licence_of(package)
            if text:
                texts[licence] = text
            packages[package] = {
                "SPDXID": reference("Package", package),
                "name": package,
                "versionInfo": version,
                "supplier": "Organization: Debian",
                "downloadLocation": "NOASSERTION",
                "filesAnalyzed": False,
                "licenseConcluded": "NOASSERTION",
                "licenseDeclared": licence,
                "copyrightText": "NOASSERTION",
                "sourceInfo": f"built from Debian's source package {source}; the library was stripped, and its search path removed",
                "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                  "referenceLocator": f"pkg:deb/debian/{package}@{version}?arch={architecture}"}],
            }
            relationships.append((files[-1]["SPDXID"], "GENERATED_FROM", packages[package]["SPDXID"]))
    checksums = sorted(file["checksums"][0]["checksumValue"] for file in files)
    code = hashlib.sha1("".join(checksums).encode()).hexdigest()
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{bundle.name} {commit}",
        "documentNamespace": uuid.uuid5(uuid.NAMESPACE_OID, f"{bundle.name} {code}").urn,
        "creationInfo": {"created": datetime.datetime.fromtimestamp(created_s, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
                         "creators": ["Tool: neuroshard-bundle"]},
        "packages": [{
            "SPDXID": root,
            "name": bundle.name,
            "versionInfo": commit,
            "supplier": "NOASSERTION",
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": True,
            "packageVerificationCode": {"packageVerificationCodeValue": code, "packageVerificationCodeExcludedFiles": ["./SPDX.json"]},
            "licenseConcluded": "NOASSERTION",
            "licenseDeclared": "Apache-2.0",
            "copyrightText": "NOASSERTION",
        }] + [packages[name] for name in sorted(packages)],
        "files": files,
        "hasExtractedLicensingInfos": [{"licenseId": licence, "name": licence.removeprefix("LicenseRef-"), "extractedText": texts[licence]} for licence in sorted(texts)],
        "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": root}] + [
            {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other} for one, kind, other in relationships],
    }


if __name__ == "__main__":
    json.dump(list_of(pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), [pathlib.Path(path) for path in sys.argv[4:]]), sys.stdout, indent=1)
    print()
