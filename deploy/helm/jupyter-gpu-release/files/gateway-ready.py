"""Asks the gateway of this pod: 0 it takes runs, 1 it does not and says why, 2 it does not answer.

With Python's own library alone: it is run every few seconds.
"""

import json
import os
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path


def own_certificate() -> ssl.SSLContext:
    """Trust the gateway's own certificate and no other, whatever name it has."""
    context = ssl.create_default_context(cafile=os.environ["GATEWAY_CERTIFICATE"])
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context


def main() -> int:
    """Ask once, print what is in the way."""
    url = os.environ["GATEWAY_URL"]
    try:
        token = (Path(os.environ["JUPYTER_GPU_HOME"]) / "token").read_text().strip()
        handlers = [urllib.request.HTTPSHandler(context=own_certificate())] if url.startswith("https:") else []
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), *handlers)
        request = urllib.request.Request(f"{url}/v1/health", headers={"Authorization": f"Bearer {token}"})
        with opener.open(request, timeout=4) as answer:
            health = json.load(answer)
    except urllib.error.HTTPError as error:
        print(f"{url} answers with {error.code}: {error.read(500).decode(errors='replace')}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{url} does not answer: {error}", file=sys.stderr)
        return 2
    if not health["ready"]:
        print("; ".join(health["problems"]) or "no node agent is up", file=sys.stderr)
        return 1
    return 0


sys.exit(main())
