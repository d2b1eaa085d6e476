"""What the MCP server of the tests returns. The tests compare with it, and the library takes a second to import."""

import base64

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAIAAAADCAIAAAA2iEnWAAAAC0lEQVR4nGNggAEAAA8AARjAtgcAAAAASUVORK5CYII=")
WAV = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x40\x1f\0\0\1\0\x08\0data\0\0\0\0"
