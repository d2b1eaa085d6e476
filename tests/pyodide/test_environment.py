"""An unreachable or untrusted registry is distinguished from a package that cannot be installed."""

from __future__ import annotations

import pytest

from .environment import unreachable

NPM = "npm error code {0}\nnpm error errno {0}\nnpm error request to https://registry.example/pyodide failed, reason: {1}\n"
RETRIES = "WARNING: Retrying (Retry(total=0, connect=None, read=None)) after connection broken by '{}': /simple/h11/\n"
NO_NAME = "NewConnectionError('Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')"
SKIPPED = (
    "Could not fetch URL https://index.example/simple/h11/: There was a problem confirming the ssl certificate: "
    "HTTPSConnectionPool(host='index.example', port=443): Max retries exceeded with url: /simple/h11/ (Caused by "
    "SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate in "
    "certificate chain (_ssl.c:1006)'))) - skipping\n"
)
NONE = "ERROR: Could not find a version that satisfies the requirement h11==0.16.0 (from versions: none)\n"


@pytest.mark.parametrize(
    "output",
    [
        pytest.param(NPM.format("EAI_AGAIN", "getaddrinfo EAI_AGAIN registry.example"), id="npm: no network"),
        pytest.param(
            NPM.format("SELF_SIGNED_CERT_IN_CHAIN", "self-signed certificate in certificate chain"), id="npm: another authority"
        ),
        pytest.param(
            NPM.format("UNABLE_TO_GET_ISSUER_CERT_LOCALLY", "unable to get local issuer certificate"), id="npm: no issuer"
        ),
        pytest.param(NPM.format("UNABLE_TO_VERIFY_LEAF_SIGNATURE", "unable to verify the first certificate"), id="npm: no chain"),
        pytest.param(NPM.format("DEPTH_ZERO_SELF_SIGNED_CERT", "self-signed certificate"), id="npm: self-signed"),
        pytest.param(RETRIES.format(NO_NAME) + NONE, id="pip: no network"),
        pytest.param(SKIPPED + NONE, id="pip: another authority"),
    ],
)
def test_a_registry_that_is_not_reached(output: str) -> None:
    assert unreachable(output) == output.splitlines()[0]


@pytest.mark.parametrize(
    "output",
    [
        pytest.param("npm error code E404\nnpm error 404 Not Found - GET https://registry.example/pyodide\n", id="npm"),
        pytest.param(NONE, id="pip"),
        pytest.param("", id="nothing"),
    ],
)
def test_another_failure(output: str) -> None:
    assert unreachable(output) == ""
