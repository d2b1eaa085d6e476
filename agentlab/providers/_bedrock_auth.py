"""Who calls Bedrock: an API key, or a signature with AWS credentials as botocore finds them.

Vendor pages, read 2026-11-22: https://docs.aws.amazon.com/bedrock/latest/userguide/api-keys-use.html and
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

from agentlab import known_keys
from agentlab.errors import MissingKeyError
from agentlab.providers._request import check_key
from agentlab.transport.http import HttpRequest

KEY_VARIABLE = "AWS_BEARER_TOKEN_BEDROCK"
NO_BOTOCORE = "botocore, which signs requests, is not installed"
_SERVICE = "bedrock"  # the name that is signed, which is not that of the host

_found: dict[str | None, Any] = {}  # credentials by profile; they renew themselves, and some are slow to find
_lock = threading.Lock()


def bearer_key(provider: str, api_key: str | None) -> str:
    """The API key given, else that of the environment, else an empty string."""
    key = api_key or os.environ.get(KEY_VARIABLE, "")
    return check_key(provider, key) if key.strip() else ""


def missing_key(provider: str, why: str = "") -> MissingKeyError:
    """What to do where there is neither a key nor credentials."""
    return MissingKeyError(
        f"No API key for {provider}, and no AWS credentials{f' ({why})' if why else ''}. Set the environment variable "
        f'{KEY_VARIABLE}, or pass lab.Provider("{provider}", model=…, api_key=…); or, with '
        "pip install 'agentlab-jupyter[bedrock]', set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile; "
        "or run on recorded responses, without a key, inside lab.replay(folder)."
    )


def signed_headers(
    request: HttpRequest, more: Mapping[str, str], *, provider: str, region: str, profile: str | None
) -> dict[str, str]:
    """The headers of a signed request, `more` of them included: the signature, its time and, for temporary credentials, their token.

    Credentials are those of the environment (unless a profile is asked for), else what botocore's chain finds: shared files, single
    sign-on, container and instance metadata, of which the last ask the network. Blocking. Raises MissingKeyError.
    """
    try:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
    except ImportError:
        raise missing_key(provider, NO_BOTOCORE) from None
    credentials = _credentials(provider, profile)
    known_keys.remember(filter(None, (credentials.secret_key, credentials.token)))
    signed = AWSRequest(method=request.method, url=request.url, headers={**request.headers, **more}, data=request.body)
    SigV4Auth(credentials, _SERVICE, region).add_auth(signed)
    sent_anyway = {name.lower() for name in request.headers} - {name.lower() for name in more}
    return {name.lower(): value for name, value in signed.headers.items() if name.lower() not in sent_anyway}


def _credentials(provider: str, profile: str | None) -> Any:
    from botocore.credentials import Credentials
    from botocore.exceptions import BotoCoreError

    identity, secret = os.environ.get("AWS_ACCESS_KEY_ID", ""), os.environ.get("AWS_SECRET_ACCESS_KEY", "")
    if profile is None and identity and secret:  # read anew each time, so that a change in a notebook counts at once
        return Credentials(identity, secret, os.environ.get("AWS_SESSION_TOKEN") or None)
    profile = profile or os.environ.get("AWS_PROFILE") or None
    with _lock:
        if profile not in _found:
            from botocore.session import Session

            try:
                credentials = Session(profile=profile).get_credentials()
            except BotoCoreError as error:
                raise missing_key(provider, str(error)) from None
            if credentials is None:
                raise missing_key(provider)
            _found[profile] = credentials
        credentials = _found[profile]
    try:
        return credentials.get_frozen_credentials()  # renewed if need be
    except BotoCoreError as error:
        raise missing_key(provider, str(error)) from None
