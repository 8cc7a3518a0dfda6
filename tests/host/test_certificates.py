"""The gateway's own certificate: each fault is named with its file, before anything is served."""

from __future__ import annotations

import os
import ssl
import subprocess
import time
from pathlib import Path

import pytest
from certificates import Authority

from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.host.certificates import (
    OwnCertificate,
    client_context,
    first_certificate,
    gateway_context,
    read_own,
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def test_a_certificate_says_for_whom_it_is_and_until_when(authority: Authority) -> None:
    found = read_own(*authority.sign("good", "gpu.example.org", "10.1.2.3", days=30))
    assert found.names == ("gpu.example.org", "10.1.2.3")
    assert 28 < found.days_left(time.time()) < 31


def test_what_cannot_be_served_is_named(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.sign("gateway", "localhost")
    with pytest.raises(OptionError, match=r"expired\.crt: the certificate has expired"):
        read_own(*authority.sign("expired", "localhost", days=-1))
    with pytest.raises(OptionError, match=r"does not belong to the certificate"):
        read_own(cert, authority.sign("other", "localhost")[1])
    with pytest.raises(OptionError, match=r"no certificate and key"):
        read_own(key, key)
    with pytest.raises(OptionError, match=r"nowhere\.crt: No such file"):
        read_own(str(tmp_path / "nowhere.crt"), key)
    locked = tmp_path / "locked.key"
    subprocess.run(["openssl", "pkey", "-in", key, "-aes128", "-passout", "pass:secret", "-out", locked], check=True)
    locked.chmod(0o600)
    with pytest.raises(OptionError, match="has a passphrase") as caught:
        read_own(cert, str(locked))
    assert "openssl pkey" in caught.value.hint
    Path(key).chmod(0o644)
    with pytest.raises(OptionError, match=r"may be read by others \(mode 0644\)") as caught:
        read_own(cert, key)
    assert caught.value.hint == f"chmod 600 {key}"


def test_a_renewed_certificate_is_served_and_a_faulty_one_is_not(authority: Authority) -> None:
    cert, key = authority.sign("renewed", "localhost")
    own = OwnCertificate(cert, key)
    assert not own.renew()
    next_cert, next_key = authority.sign("next", "localhost", days=60)
    os.replace(next_cert, cert)
    with pytest.raises(OptionError, match="does not belong"):  # the key has not come yet
        own.renew()
    assert not own.renew()  # it is said once
    os.replace(next_key, key)
    assert own.renew()


def test_trust_in_a_file_that_is_none_is_refused(authority: Authority, tmp_path: Path) -> None:
    assert isinstance(client_context(str(authority.file)), ssl.SSLContext)
    with pytest.raises(OptionError, match="cannot read the certificates"):
        client_context(str(tmp_path / "missing.pem"))
    (tmp_path / "text.pem").write_text("no certificate")
    with pytest.raises(OptionError, match="holds no certificate"):
        client_context(str(tmp_path / "text.pem"))


def _is_trusted(pin: str, cert: str, key: str) -> bool:
    one, other = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = gateway_context(cert, key).wrap_bio(one, other, server_side=True)
    asking = client_context(own=pin).wrap_bio(other, one)
    for side in (asking, serving, asking, serving, asking):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError:
            return False
    return True


def test_a_pinned_file_with_its_chain_trusts_the_first_certificate_alone(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.sign("pinned", "localhost")
    chain = tmp_path / "fullchain.pem"
    chain.write_text("a note\n" + Path(cert).read_text() + authority.file.read_text())
    assert _is_trusted(str(chain), str(chain), key)
    assert _is_trusted(first_certificate(str(chain)), str(chain), key)
    assert not _is_trusted(str(chain), *authority.sign("evil", "evil.example"))
    assert read_own(str(chain), key).names == ("localhost",)
