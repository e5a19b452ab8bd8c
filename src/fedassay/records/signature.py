"""The signature of a run's statement: a DSSE envelope, written, read and checked by securesystemslib.

Any other signer of in-toto statements (cosign, in-toto) may write the envelope as well. Keys are PEM files or
those of OpenSSH: RSA, ECDSA or Ed25519.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedassay.records.statement import (
    ENVELOPE,
    PAYLOAD_TYPE,
    STATEMENT,
    About,
    Statement,
    envelope_of,
    signed_statement,
)
from fedassay.support import limits
from fedassay.support.atomic import write_text
from fedassay.support.errors import DataError, PlanError
from fedassay.support.reading import check_json, read_regular

_MISSING = "--key: securesystemslib is not installed; install fedassay[sign]"
_PASSWORD = "FEDASSAY_KEY_PASSWORD"
"""Environment variable with the password of a private key that has one."""


def fingerprint(key: Path) -> str:
    """Return the SHA-256 of a public key (its DER form, SubjectPublicKeyInfo), the name of a signer in policies.

    Raises:
        PlanError: The key cannot be read, or securesystemslib is not installed.
    """
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    der = _public(key).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def signed_by(folder: Path, envelope: bytes, key: Path, about: About = "run") -> Statement | None:
    """Return the statement in an envelope, if this key signed it.

    Args:
        folder: The run folder, for errors.
        envelope: The content of `statement.dsse.json`.
        key: A public key, PEM or OpenSSH.
        about: The subject that the statement must have: the files of a run, or of its evidence.

    Returns:
        The signed statement; None where no signature is this key's.

    Raises:
        DataError: The envelope is invalid, or holds no statement of fedassay.
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


def sign(folder: Path, key: Path) -> str:
    """Sign the statement of a run, or of a folder of evidence, and keep the signatures that it has.

    Args:
        folder: The folder of the statement; the envelope is written into it.
        key: A private key, PEM or OpenSSH.

    Returns:
        SHA-256 of the public key, the name of a signer in policies.

    Raises:
        DataError: There is no statement.
        PlanError: The key cannot be read, or securesystemslib is not installed.
    """
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
        from securesystemslib.dsse import Envelope
        from securesystemslib.signer import CryptoSigner
    except ImportError:
        raise PlanError(_MISSING) from None
    private = _private(key)
    payload = read_regular(folder / STATEMENT, limits.JSON_BYTES, follow=False)
    envelope = Envelope(payload, PAYLOAD_TYPE, {})
    before = envelope_of(folder)
    if before is not None:
        with suppress(DataError, KeyError, TypeError, ValueError, AttributeError):
            held = Envelope.from_dict(_content(folder, before))
            # Signatures of another statement do not apply to this one.
            envelope = held if held.payload == payload and held.payload_type == PAYLOAD_TYPE else envelope
    try:
        signature = CryptoSigner(private).sign(envelope.pae())
    except (ValueError, TypeError, AttributeError) as error:
        raise _no_key(key, error, "private") from None
    # In the envelope, signatures are numbered in their order, as they are when it is read.
    signature.keyid = str(len(envelope.signatures))
    envelope.signatures[signature.keyid] = signature
    write_text(folder / ENVELOPE, json.dumps(envelope.to_dict()))
    der = private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def _public(key: Path) -> Any:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_public_key, load_ssh_public_key
    except ImportError:
        raise PlanError(_MISSING) from None
    content = read_regular(key, limits.KEY_BYTES, error=PlanError)
    load = load_pem_public_key if b"-----BEGIN" in content else load_ssh_public_key
    try:
        return load(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _no_key(key, error) from None


def _private(key: Path) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

    content = read_regular(key, limits.KEY_BYTES, error=PlanError)
    load = load_ssh_private_key if b"BEGIN OPENSSH" in content else load_pem_private_key
    password = os.environ.get(_PASSWORD)
    try:
        return load(content, None if password is None else password.encode())
    except TypeError as error:
        if password is not None:
            raise _no_key(key, error, "private") from None
        raise PlanError(f"--key {key}: it has a password; allowed: {_PASSWORD} with it") from None
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _no_key(key, error, "private") from None


def _no_key(key: Path, error: Exception, kind: str = "public") -> PlanError:
    reason = str(error).partition("\n")[0]
    return PlanError(
        f"--key {key}: no {kind} key in it ({reason}); allowed: RSA, ECDSA or Ed25519, PEM or OpenSSH"
    )


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
        # Under the name that the library gives the key: only the key itself counts.
        public.verify_signature(Signature(public.keyid, signature.signature), content)
    except (UnverifiedSignatureError, VerificationError):
        return False
    return True
