"""Limits on input written by others, all in one place, each with its reason.

The limits serve one end: any file is read, or refused with one message, in 2 seconds and 500 MB.
Honest files stay far below them. Limits of a format's own fields (a number in (0, 1]) stand with the field.
"""

from __future__ import annotations

MIB = 1 << 20
GIB = 1 << 30

YAML_BYTES = MIB
"""Bytes of a plan, a policy or a list of releases. The largest that ship have 10 kB; a mebibyte takes a second."""

YAML_DEPTH = 40
"""Nesting of YAML. Plans go 6 deep; parsers and validators recurse."""

YAML_NODES = 50_000
"""Values in YAML, each alias counted as all that it stands for: a few aliases can stand for billions."""

NUMBER_LENGTH = 40
"""Characters of a number. A double is written in 25; integers of thousands of digits take quadratic time."""

JSON_BYTES = 64 * MIB
"""Bytes of a record, or of the manifest of a transcript. A cell takes 50 kB, a message 400 bytes."""

KEY_BYTES = MIB
"""Bytes of a public key in PEM. An RSA key with 16,384 bits has 3 kB."""

JSON_CONTAINERS = 300_000
"""Lists and mappings in JSON. One that is empty takes 2 bytes in the file and 100 to 200 in memory."""

JSON_VALUES = 4_000_000
"""Values in JSON; a number takes 2 bytes in the file and 40 in memory."""

TEXT_LENGTH = 100_000
"""Bytes of one text in JSON. Reasons take hundreds; pages print texts as they are."""

NAME_LENGTH = 1_000
"""Characters of a name: a label, a sender, a field. A file's name has 255 at most."""

FILE_NAME = 150
"""Characters of a name that a folder gets; file systems take 255 bytes, and something is appended."""

MESSAGES = 100_000
"""Messages of a transcript: four thousand clients in 25 rounds. Each takes 10 kB in memory beside its arrays."""

CLASSES = 100_000
"""More classes than any public label set has; arrays of one row a class are allocated."""

RELEASES = 100_000
"""Blocks of distinct releases of a transcript: each is an entry of the ledger. Equal messages share one entry."""

UNLIKE = 20_000
"""Declarations of fields that differ in a transcript: every sender of others has an entry in the record."""

ASKED = 10_000_000
"""Candidates of a gallery times senders of captured messages: 200 bytes each."""

COMPOSITIONS = 200
"""Totals computed in a search for the worst of all compositions; one of DP-SGD takes a fifth of a second."""

TOTALS = 10_000_000
"""Numbers of the compositions that are compared: 80 MB."""

DISTINCT = 32
"""Different pure epsilons, and different kinds of DP-SGD, of one composition: each has a grid of its own."""

KINDS = 4
"""Kinds of DP-SGD that more than `DISTINCT` of them are composed as: each takes a second where grids are fine."""

STEPS = 10_000_000
"""Noisy steps of one DP-SGD release. A thousand epochs of a million records in batches of 100."""

RECORDS = 1_000_000_000
"""Records of a data set; a larger number is no count."""

ENTRIES = 1_000
"""Methods, attacks or audits of a plan."""

CELLS = 10_000
"""Cells of a plan: each has a folder, a record and a row in every table."""

THREADS = 1_024
"""Threads of a cell; the largest machines have about as many cores."""

CLIENTS = 100_000
"""Clients of a plan: each has its own records and message."""

ARRAYS = 10_000
"""Arrays in one file of weights, or in one message. The largest vision networks have 2,000."""

HEADER_BYTES = 4 * MIB
"""Bytes of a safetensors header, which takes about 100 bytes an array."""

MESSAGE_BYTES = 4 * GIB
"""Bytes of one message as it was sent."""

RUN_FILE_BYTES = GIB
"""Bytes of any other file of a run: a page with all its pictures has some megabytes."""

PACKED = 2 * MESSAGES
"""Files in an archive of a run."""

ARCHIVE_BYTES = 64 * GIB
"""Bytes of an archive of a run, and of its unpacked content."""

SIDES = 16
"""Axes of an array."""

WEIGHTS_BYTES = 8 * GIB
"""Bytes of a file of weights. The largest that torchvision publishes has 2.6 GB."""

PICKLE_BYTES = 32 * MIB
"""Bytes of the part of a file of weights that describes its tensors; 200 bytes a tensor."""

ARRAY_BYTES = 8 * GIB
"""Bytes of all images of a data set in memory. ImageNet's 1.3 million at 32 pixels a side take 4 GiB."""

RATIO = 200
"""Largest ratio of an array's unpacked to its packed size, beyond `UNPACKED_FREELY`; photographs: 3."""

UNPACKED_FREELY = 64 * MIB
"""Unpacked size (bytes) up to which the compression ratio of an array is not checked."""

MEMBERS = 10_000
"""Files in a packed archive."""

TABLE_LINE = MIB
"""Characters of a line in a table of labels; clinical tables have hundreds of columns."""

TABLE_COLUMNS = 10_000
"""Columns of a table of labels."""

TABLE_ROWS = 1_000_000
"""Lines of a table of labels, empty ones too. ChestX-ray14 has 112,000, most tables some thousands."""

TABLE_BYTES = 256 * MIB
"""Bytes of a table of labels. A million rows of 100 letters take 100 MB."""

FOLDERS_DEEP = 32
"""Folders inside each other that are searched for images."""

IMAGE_FILE_BYTES = 256 * MIB
"""Bytes of one image file."""

IMAGE_PIXELS = 64 * MIB
"""Pixels of one image, according to its header: more than any camera's, and 200 MB in memory."""

IMAGE_HEADER_BYTES = 64 * 1024
"""Bytes of a text in an image's header, which is read byte by byte."""

FRAMES = 10_000
"""Pictures in one image file: pages, frames, slices. A scan of a body has some hundreds."""

LOOKED = 200_000
"""Headers of image files that are remembered while a command runs; each takes half a kilobyte."""

IMAGE_SIDE = 4_096
"""Side that images are resized to, in pixels; the largest networks take 1,024."""

WIDTH = 16_384
"""Width of a second moment or of a covariance: its eigenvalues take the cube of it, in memory 2 GiB."""

CAPTURED_MINUTES = 10.0
"""Estimated minutes of the attacks on captured messages, unless `fedassay audit --minutes` allows more."""
