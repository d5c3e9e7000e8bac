"""A bill of materials as CycloneDX 1.6 in JSON, from what is known of an image or a native runtime.

The same subject gives the same text: its serial number follows from its content, its time is the subject's.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from onecat import __version__
from onecat.images.inventory import Distribution, Inventory, SystemPackage

if TYPE_CHECKING:
    from cyclonedx.model.component import Component, Patch, Pedigree

    from onecat.patching import Series

NAMESPACE = uuid.UUID("7b8f5a0e-5d43-5b0e-9a55-0f1c8f7a2f10")
"""Of our serial numbers: any fixed value does (RFC 9562, section 5.5)."""


@dataclass(frozen=True)
class BaseImage:
    """The image that another starts from. digest: of its registry; None for a local one. image_id: on its engine."""

    name: str
    digest: str | None
    image_id: str | None


@dataclass(frozen=True)
class Subject:
    """What a bill is for, and where it came from.

    kind: container or application. identity: what names its content (an image's id, a runtime's digest).
    created: when it was made; None where that would say nothing. engine: names under which its distribution may be
    installed. upstream: the source it was made from, when it is known: name, version, file's SHA-256 (hex), licence.
    series: the patches in it. hashes: (project, version) -> SHA-256 (hex) of the wheel it was installed from.
    """

    kind: str
    name: str
    version: str
    identity: str
    created: datetime | None
    inventory: Inventory
    base: BaseImage | None = None
    engine: tuple[str, ...] = ()
    series: Series | None = None
    hashes: Mapping[tuple[str, str], str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def document_of(subject: Subject) -> str:
    """A bill as CycloneDX 1.6 in JSON, indented, with a line end.

    Its serial number is made from everything else in it.
    """
    from cyclonedx.model.bom import Bom
    from cyclonedx.output.json import JsonV1Dot6

    def text(serial: uuid.UUID) -> str:
        bom = Bom(serial_number=serial, metadata=_metadata(subject))
        root = bom.metadata.component
        assert root is not None
        components = _components(subject)
        for each in components:
            bom.components.add(each)
        bom.register_dependency(root, components)
        return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"

    unnamed = text(uuid.UUID(int=0))
    return text(uuid.uuid5(NAMESPACE, hashlib.sha256(unnamed.encode()).hexdigest()))


def _metadata(subject: Subject) -> Any:
    from cyclonedx.model import Property
    from cyclonedx.model.bom import BomMetaData
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.tool import ToolRepository

    properties = [Property(name="io.onecat:identity", value=subject.identity)]
    properties += [Property(name="io.onecat:unread", value=each) for each in subject.inventory.unread]
    properties += [Property(name="io.onecat:note", value=each) for each in subject.notes]
    return BomMetaData(
        # A time is demanded, and one that says nothing is better than one that differs: the epoch.
        timestamp=subject.created or datetime.fromtimestamp(0, timezone.utc),
        tools=ToolRepository(
            components=[Component(type=ComponentType.APPLICATION, name="onecat", version=__version__, bom_ref="onecat")]
        ),
        component=Component(
            type=ComponentType(subject.kind),
            name=subject.name,
            version=subject.version,
            bom_ref=subject.identity,
        ),
        properties=properties,
    )


def _components(subject: Subject) -> list[Component]:
    from cyclonedx.model.component import Component, ComponentType

    inventory = subject.inventory
    found = [_system_component(each, inventory.system) for each in inventory.packages]
    found += [_distribution_component(each, subject) for each in inventory.distributions]
    if inventory.system is not None:
        name, version = inventory.system
        found.append(
            Component(
                type=ComponentType.OPERATING_SYSTEM,
                name=name,
                version=version or None,
                bom_ref=f"os:{name}@{version}",
            )
        )
    if inventory.cuda is not None:
        found.append(
            Component(
                type=ComponentType.PLATFORM,
                name="cuda-toolkit",
                version=inventory.cuda,
                bom_ref=f"cuda@{inventory.cuda}",
            )
        )
    if subject.base is not None:
        found.append(_base_component(subject.base))
    return found


def _system_component(package: SystemPackage, system: tuple[str, str] | None) -> Component:
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    name, version = system or ("debian", "")
    qualifiers = {"arch": package.architecture}
    if version:
        qualifiers["distro"] = f"{name}-{version}"
    if package.source != package.name:
        qualifiers["upstream"] = package.source
    purl = PackageURL("deb", name, package.name, package.version, qualifiers)
    return Component(
        type=ComponentType.LIBRARY, name=package.name, version=package.version, purl=purl, bom_ref=str(purl)
    )


def _distribution_component(distribution: Distribution, subject: Subject) -> Component:
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model import HashAlgorithm, HashType, Property
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    project = canonicalize_name(distribution.name)
    is_engine = project in subject.engine
    purl = PackageURL("pypi", None, project, distribution.version)
    sha256 = subject.hashes.get((project, distribution.version))
    patched = subject.series if is_engine else None
    licences = [LicenseFactory().make_from_string(each) for each in distribution.licences]
    # The format takes one expression or any number of ids and names.
    expressions = [each for each in licences if hasattr(each, "value")]
    return Component(
        type=ComponentType.APPLICATION if is_engine else ComponentType.LIBRARY,
        name=distribution.name,
        version=distribution.version,
        purl=purl,
        bom_ref=f"{purl}#/{distribution.folder}",
        licenses=expressions[:1] or licences,
        # A wheel that was patched is no longer the one that the lock has.
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)] if sha256 and not patched else [],
        properties=[Property(name="io.onecat:folder", value=f"/{distribution.folder}")],
        pedigree=_pedigree(patched, distribution, sha256) if patched else None,
        components=_added(patched) if patched else [],
    )


def _pedigree(series: Series, engine: Distribution, wheel: str | None) -> Pedigree:
    """Where a patched engine comes from: its source, or the wheel (SHA-256 in hex) that was patched."""
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.component import Component, ComponentType, Pedigree
    from packageurl import PackageURL

    upstream = series.upstream
    name, version, sha256 = upstream.distribution, upstream.version, upstream.sha256
    qualifiers = {"file_name": upstream.file}
    if wheel is not None:
        name, version, sha256, qualifiers = canonicalize_name(engine.name), engine.version, wheel, {}
    purl = PackageURL("pypi", None, name, version, qualifiers)
    source = Component(
        type=ComponentType.APPLICATION,
        name=name,
        version=version,
        purl=purl,
        bom_ref=f"ancestor:{purl}",
        licenses=[LicenseFactory().make_from_string(upstream.licence)],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)],
    )
    notes = (
        f"series {series.name}, sha256 {series.digest}, {len(series.patches)} patches, {len(series.added)} files added"
    )
    return Pedigree(ancestors=[source], patches=[_patch(series, each) for each in series.patches], notes=notes)


def _patch(series: Series, patch: Any) -> Patch:
    from cyclonedx.model import XsUri
    from cyclonedx.model.component import Diff, Patch, PatchClassification
    from cyclonedx.model.issue import IssueClassification, IssueType, IssueTypeSource

    reference = XsUri(patch.reference) if patch.reference.startswith("https://") else None
    return Patch(
        type=PatchClassification.UNOFFICIAL,
        diff=Diff(url=XsUri(f"patches/{series.name}/{patch.file}#sha256={patch.sha256}")),
        resolves=[
            IssueType(
                type=IssueClassification.ENHANCEMENT,
                id=patch.name,
                description=patch.purpose,
                source=IssueTypeSource(name="upstream", url=reference) if reference else None,
            )
        ],
    )


def _added(series: Series) -> list[Component]:
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.component import Component, ComponentType

    return [
        Component(
            type=ComponentType.FILE,
            name=path,
            bom_ref=f"added:{path}",
            hashes=[
                HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(series.added_content(path)).hexdigest())
            ],
        )
        for path in series.added
    ]


def _base_component(base: BaseImage) -> Component:
    from cyclonedx.model import Property
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    from onecat.images.engine_images import repository_and_tag

    repository, tag = repository_and_tag(base.name)
    purl = PackageURL("docker", None, repository, base.digest, {"tag": str(tag)}) if base.digest else None
    return Component(
        type=ComponentType.CONTAINER,
        name=repository,
        version=str(tag),
        purl=purl,
        bom_ref=f"base:{base.name}",
        properties=[Property(name="io.onecat:image-id", value=base.image_id)] if base.image_id else [],
    )
