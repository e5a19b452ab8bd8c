"""The signature of a run's statement: a DSSE envelope, read and checked by securesystemslib.

Whoever signs (securesystemslib itself, in-toto, cosign) writes the envelope; fedassay makes no signature.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from fedassay.records.statement import ENVELOPE, PAYLOAD_TYPE, About, Statement, signed_statement
from fedassay.support import limits
from fedassay.support.errors import DataError, PlanError
from fedassay.support.reading import check_json, read_regular

_MISSING = "--key: securesystemslib is not installed; install fedassay[sign]"


def fingerprint(key: Path) -> str:
    """SHA-256 of a public key (its DER form, SubjectPublicKeyInfo), by which a policy names a signer.

    Raises:
        PlanError: The key cannot be read, or securesystemslib is not installed.
    """
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    der = _public(key).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def signed_by(folder: Path, envelope: bytes, key: Path, about: About = "run") -> Statement | None:
    """The statement in an envelope, if this key signed it.

    Args:
        folder: The run folder, for errors.
        envelope: The content of `statement.dsse.json`.
        key: A public key, PEM (RSA, ECDSA or Ed25519).
        about: Whose files the statement has to be about.

    Returns:
        The statement that was signed; None where no signature is this key's.

    Raises:
        DataError: The envelope is none, or holds no statement of ours.
        PlanError: The key cannot be read, or securesystemslib is not installed.
    """
    try:
        from securesystemslib.dsse import Envelope
        from securesystemslib.exceptions import FormatError
        from securesystemslib.signer import SSlibKey
    except ImportError:
        raise PlanError(_MISSING) from None
    loaded = _public(key)
    try:
        public = SSlibKey.from_crypto(loaded)
    except ValueError as error:
        raise _no_key(key, error) from None
    try:
        read = Envelope.from_dict(_content(folder, envelope))
    except (KeyError, TypeError, ValueError, AttributeError, FormatError):
        raise DataError(f"{folder / ENVELOPE}: is no DSSE envelope") from None
    if read.payload_type != PAYLOAD_TYPE:
        raise DataError(f"{folder / ENVELOPE}: holds {read.payload_type!r}; allowed: {PAYLOAD_TYPE}")
    if not any(_is_signed(public, signature, read.pae()) for signature in read.signatures.values()):
        return None
    return signed_statement(base64.b64encode(read.payload), folder, about)


def _public(key: Path) -> Any:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError:
        raise PlanError(_MISSING) from None
    content = read_regular(key, limits.KEY_BYTES, error=PlanError)
    try:
        return load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _no_key(key, error) from None


def _no_key(key: Path, error: Exception) -> PlanError:
    reason = str(error).partition("\n")[0]
    return PlanError(f"--key {key}: no public key in it ({reason}); allowed: a PEM file")


def _content(folder: Path, envelope: bytes) -> dict[str, Any]:
    # The payload is one long text.
    check_json(envelope, folder / ENVELOPE, texts=False)
    try:
        content = json.loads(envelope)
        signatures = content["signatures"]
        for number, signature in enumerate(signatures):
            # Signers may leave out what key it was.
            signature["keyid"] = f"{number}"
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DataError(f"{folder / ENVELOPE}: is no DSSE envelope") from None
    assert isinstance(content, dict)
    return content


def _is_signed(public: Any, signature: Any, content: bytes) -> bool:
    from securesystemslib.exceptions import UnverifiedSignatureError, VerificationError
    from securesystemslib.signer import Signature

    try:
        # Under the name that the library gives the key: what counts is whose signature it is.
        public.verify_signature(Signature(public.keyid, signature.signature), content)
    except (UnverifiedSignatureError, VerificationError):
        return False
    return True
