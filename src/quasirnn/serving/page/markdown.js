// Markdown as elements of a page: headings, paragraphs, lists, tables, quotes, code, emphasis and links.
//
// The text may be anybody's: all of it goes into text nodes, and a link leads to http or https only. No pattern takes
// longer than in proportion to the line.

const DEEPEST = 8; // quotes and lists inside each other
const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const HEADING = /^ {0,3}(#{1,6})\s+/;
const ITEM = /^ *([-*+]|\d{1,9}[.)])\s+/;
const INDENTED = /^(\t| {4})/;
const QUOTE = /^ {0,3}> ?/;
const RULE = /^(?:[-*_] *){3,}$/;
const INLINE = new RegExp(
  [
    /\\[!-/:-@[-`{-~]/, // an escaped mark
    /`[^`\n]+`/,
    /\*\*[^*\n]+\*\*/,
    /\*[^*\s][^*\n]*\*/,
    /(?<!\w)_[^_\s][^_\n]*_(?!\w)/,
    /!?\[[^[\]\n]*\]\([^()\s]*\)/,
    /<https?:\/\/[^\s<>]+>/,
    /https?:\/\/[^\s<>()]*[^\s<>().,;:!?]/,
  ].map(({ source }) => source).join("|"),
  "g",
);

/**
 * @param text the Markdown
 * @param above how many levels of headings the page has above those of the text
 * @returns a fragment with the elements
 */
export function markdown(text, above = 0) {
  return blocks(text.replace(/^\uFEFF/, "").replaceAll("\r\n", "\n").split("\n"), above, 0);
}

function blocks(lines, above, depth) {
  const made = document.createDocumentFragment();
  for (let at = 0; at < lines.length; ) {
    const line = lines[at];
    if (!line.trim()) at++;
    else if (FENCE.test(line)) at += fenced(made, lines, at);
    else if (at === 0 && depth === 0 && line === "---") at += frontMatter(made, lines);
    else if (INDENTED.test(line)) at += indented(made, lines, at);
    else if (HEADING.test(line)) {
      const level = Math.min(6, HEADING.exec(line)[1].length + above);
      made.append(element(`h${level}`, inline(line.replace(HEADING, "").trim())));
      at++;
    } else if (RULE.test(line.trim())) {
      made.append(document.createElement("hr"));
      at++;
    } else if (isTable(lines, at)) at += table(made, lines, at);
    else if (depth < DEEPEST && QUOTE.test(line)) {
      const quoted = run(lines, at, (each) => QUOTE.test(each));
      made.append(element("blockquote", blocks(quoted.map((each) => each.replace(QUOTE, "")), above, depth + 1)));
      at += quoted.length;
    } else if (depth < DEEPEST && ITEM.test(line)) at += list(made, lines, at, above, depth);
    else {
      const words = run(lines, at, (each, index) => index === at || !beginsBlock(lines, index));
      made.append(element("p", inline(words.map((each) => each.trim()).join("\n"))));
      at += words.length;
    }
  }
  return made;
}

/** The lines from `at` on for which `goesOn(line, index)` holds. */
function run(lines, at, goesOn) {
  let end = at;
  while (end < lines.length && goesOn(lines[end], end)) end++;
  return lines.slice(at, end);
}

function beginsBlock(lines, at) {
  const line = lines[at];
  const marks = FENCE.test(line) || HEADING.test(line) || QUOTE.test(line) || ITEM.test(line);
  return !line.trim() || marks || RULE.test(line.trim()) || isTable(lines, at);
}

function fenced(made, lines, at) {
  const [, mark] = FENCE.exec(lines[at]);
  const content = run(lines, at + 1, (line) => !line.trim().startsWith(mark));
  made.append(code(content));
  return content.length + 2;
}

/** Facts for machines at the top of a file: shown as they are. */
function frontMatter(made, lines) {
  const content = run(lines, 1, (line) => line !== "---");
  made.append(code(content));
  return content.length + 2;
}

function indented(made, lines, at) {
  const content = run(lines, at, (line) => INDENTED.test(line) || !line.trim());
  const used = content.length;
  while (!content.at(-1).trim()) content.pop();
  made.append(code(content.map((line) => line.replace(INDENTED, ""))));
  return used;
}

function code(lines) {
  return element("pre", element("code", lines.join("\n")));
}

function cells(line) {
  return line.trim().replace(/^\|/, "").replace(/\|$/, "").split("|").map((each) => each.trim());
}

function isTable(lines, at) {
  const [head, rule] = [lines[at], lines[at + 1]];
  return head.includes("|") && Boolean(rule?.includes("|")) && cells(rule).every((each) => /^:?-+:?$/.test(each));
}

function table(made, lines, at) {
  const rows = run(lines, at, (line) => line.includes("|"));
  const right = cells(rows[1]).map((each) => each.endsWith(":") && !each.startsWith(":"));
  const row = (line, kind) =>
    element("tr", ...cells(line).map((each, column) => {
      const cell = element(kind, inline(each));
      if (right[column]) cell.className = "figures";
      return cell;
    }));
  const body = rows.slice(2).map((line) => row(line, "td"));
  const whole = element("table", element("thead", row(rows[0], "th")), element("tbody", ...body));
  const frame = element("div", whole);
  frame.className = "sideways";
  // It may scroll, and so must be reached by keys.
  frame.tabIndex = 0;
  made.append(frame);
  return rows.length;
}

/** An item has the lines that are indented further than its mark, and those that go on with its paragraph. */
function list(made, lines, at, above, depth) {
  const margin = lines[at].search(/\S/);
  const width = ITEM.exec(lines[at])[0].length;
  const numbered = /\d/.test(lines[at][margin]);
  const isNext = (line) => {
    const mark = line.search(/\S/) <= margin + 1 && ITEM.exec(line);
    return Boolean(mark) && /\d/.test(mark[1]) === numbered;
  };
  const belongs = (line) => line !== undefined && (line.search(/\S/) > margin || isNext(line));
  const items = [];
  let end = at;
  for (; end < lines.length; end++) {
    const line = lines[end];
    if (isNext(line)) items.push([line.replace(ITEM, "")]);
    else if (line.trim() ? belongs(line) : belongs(lines[end + 1])) items.at(-1).push(dedented(line, width));
    else if (beginsBlock(lines, end) || !lines[end - 1].trim()) break;
    else items.at(-1).push(line);
  }
  made.append(element(numbered ? "ol" : "ul", ...items.map((item) => tightItem(item, above, depth))));
  return end - at;
}

/** Without the indentation that belongs to the item: as much as its mark takes. */
function dedented(line, width) {
  const from = line.search(/\S/);
  return from < 0 ? "" : line.slice(Math.min(from, width));
}

/** An item of one paragraph is set without the space around one. */
function tightItem(lines, above, depth) {
  const content = blocks(lines, above, depth + 1);
  const first = content.firstElementChild;
  if (first?.tagName === "P") first.replaceWith(...first.childNodes);
  return element("li", content);
}

function inline(text) {
  const made = document.createDocumentFragment();
  let from = 0;
  for (const match of text.matchAll(INLINE)) {
    made.append(text.slice(from, match.index), marked(match[0]));
    from = match.index + match[0].length;
  }
  made.append(text.slice(from));
  return made;
}

function marked(text) {
  if (text[0] === "\\") return text.slice(1);
  if (text[0] === "`") return element("code", text.slice(1, -1));
  if (text.startsWith("**")) return element("strong", inline(text.slice(2, -2)));
  if (text[0] === "*" || text[0] === "_") return element("em", inline(text.slice(1, -1)));
  if (text[0] === "<") return link(text.slice(1, -1), text.slice(1, -1));
  if (text.startsWith("http")) return link(text, text);
  const [, label, target] = /\[([^\]]*)\]\((.*)\)$/.exec(text);
  return text[0] === "!" || !/^https?:\/\//.test(target) ? inline(label) : link(inline(label), target);
}

function link(content, target) {
  const made = element("a", content);
  Object.assign(made, { href: target, target: "_blank", rel: "noopener noreferrer" });
  return made;
}

/** An element with children; strings become text. */
export function element(name, ...children) {
  const made = document.createElement(name);
  made.append(...children);
  return made;
}
