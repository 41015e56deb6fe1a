"""Parser of a page as a browser parses HTML: elements, and the text between elements."""

import html.parser


class Reader(html.parser.HTMLParser):
    """Collects the start tags with their attributes, and the text."""

    def __init__(self, markup):
        super().__init__()
        self.tags, self.texts = [], []
        self.feed(str(markup))
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return "".join(self.texts)

    @property
    def names(self):
        return {tag for tag, _ in self.tags}


HOSTILE_NAMES = (
    "<script>alert(1)</script>",
    "</text></svg><img src=x onerror=alert(1)>",
    '"><style>*{display:none}</style>',
    "\u202etxt.exe\u2066 \u200f",
    "\x00\x1b[2J\ud800",
    "relu\n</tbody>",
    "a" * 10_000,
    "\U0001f642" * 10_000,
    "&lt;b&gt; {{ 7 * 7 }} ${x}",
)
