"""What has to be known of the notebook that this runs in: is there a page, its stop button, and the kernel's private ways."""

from __future__ import annotations
