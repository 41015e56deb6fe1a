"use strict";
// Colours of Python source, and of the CUDA text in its string literals. Submissions write the source: no repeat
// backtracks, and an alternative reads at most ten characters before the last point of failure.
const LINE_STRINGS = String.raw`"(?:[^"\\\n]|\\[^])*"?|'(?:[^'\\\n]|\\[^])*'?`;
const OTHERS = String.raw`(?<m>\d(?:[eEpP][+-]|[\w.])*)|(?<word>[A-Za-z_]\w*)`;
// The end of a string or comment is optional: without the end, the text reaches to the end of the source.
const PYTHON = {
  scanner: new RegExp(
    String.raw`(?<c>#[^\n]*)|(?<s>[bBfFrRuU]{0,2}(?:"""(?:[^"\\]|\\[^]|"(?!""))*(?:""")?|'''(?:[^'\\]|\\[^]|'(?!''))*(?:''')?|` +
      `${LINE_STRINGS}))|` + String.raw`(?<f>@[\w.]+)|${OTHERS}`, "g"),
  words: new Set(("False None True and as assert async await break class continue def del elif else except finally for " +
    "from global if import in is lambda nonlocal not or pass raise return try while with yield").split(" ")),
};
const CUDA = {
  scanner: new RegExp(
    String.raw`(?<c>//[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/)?)|(?<k>^ {0,8}# ?\w+)|(?<s>${LINE_STRINGS})|${OTHERS}`, "gm"),
  words: new Set(("alignas auto bool break case char class const constexpr continue default delete do double else enum " +
    "extern false float for goto if inline int long namespace new nullptr operator private public return short signed " +
    "sizeof static struct switch template this true typedef typename union unsigned using virtual void volatile while " +
    "__constant__ __device__ __forceinline__ __global__ __host__ __launch_bounds__ __restrict__ __shared__").split(" ")),
};

// Pairs of a class, empty for none, and a text. A name followed by ( has the colour of a function.
function* tokens(source, language) {
  let end = 0;
  for (const token of source.matchAll(language.scanner)) {
    let [kind] = Object.entries(token.groups).find(([, text]) => text !== undefined);
    const after = token.index + token[0].length;
    if (kind === "word") kind = language.words.has(token[0]) ? "k" : source[after] === "(" ? "f" : "";
    if (!kind) continue;
    yield ["", source.slice(end, token.index)];
    if (kind === "s" && language === PYTHON && /__global__|#include|__device__/.test(token[0])) yield* native(token[0]);
    else yield [kind, token[0]];
    end = after;
  }
  yield ["", source.slice(end)];
}

// A string literal that holds CUDA: the quotes as a string, the text between as CUDA.
function* native(literal) {
  const [opening, quotes] = /^[bBfFrRuU]{0,2}("""|'''|"|')/.exec(literal);
  const isClosed = literal.length >= opening.length + quotes.length && literal.endsWith(quotes);
  const close = isClosed ? literal.length - quotes.length : literal.length;
  yield ["s", opening];
  yield* tokens(literal.slice(opening.length, close), CUDA);
  yield ["s", literal.slice(close)];
}

function colour(pre) {
  if (pre.childElementCount) return;
  const pieces = Array.from(tokens(pre.textContent, PYTHON), ([kind, text]) => {
    if (!kind) return text;
    const span = document.createElement("span");
    span.className = kind;
    span.textContent = text;
    return span;
  });
  pre.replaceChildren(...pieces);
}
