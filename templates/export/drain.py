# Runs before the server is told to stop: first the cluster learns to send no more requests, then the last ones end.
import re
import sys
import time
import urllib.request

url, wait, limit = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
gauges = re.compile(r"^vllm:num_requests_(?:running|waiting)(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)
time.sleep(wait)
deadline = time.monotonic() + limit
while time.monotonic() < deadline:
    try:
        metrics = opener.open(url + "/metrics", timeout=5).read().decode()
    except OSError:
        break
    if not sum(float(value) for value in gauges.findall(metrics)):
        break
    time.sleep(1)
