// JSON Schema in words: the fields of an object with their types and limits.

const TYPES = { string: "text", boolean: "true or false", integer: "integer", number: "number", object: "object" };
const DEEPEST = 4;

/** A schema without references and, of alternatives, the one that is not null; `nullable` says that null is one. */
export function resolve(api, schema = {}) {
  if (schema.$ref) return { ...api.components.schemas[schema.$ref.split("/").at(-1)], ...without(schema, "$ref") };
  const others = schema.anyOf?.filter(({ type }) => type !== "null");
  if (others?.length !== 1) return schema;
  return { ...resolve(api, others[0]), ...without(schema, "anyOf"), nullable: others.length < schema.anyOf.length };
}

function without(object, key) {
  return Object.fromEntries(Object.entries(object).filter(([name]) => name !== key));
}

/**
 * The fields of an object, those inside of them too, under names such as `results[].label`.
 *
 * @param side "request" or "answer"; of a request it is said what may be left out
 * @returns a list of {name, type, required, limits, description}
 */
export function fieldsOf(api, schema, side = "request", prefix = "", depth = 0) {
  if (depth > DEEPEST) return [];
  return Object.entries(schema.properties ?? {}).flatMap(([key, raw]) => {
    const field = resolve(api, raw);
    const name = prefix + key;
    const limits = limitsOf(api, field);
    const asked = side === "request";
    const defaultText = [null, ""].includes(field.default) ? undefined : JSON.stringify(field.default);
    if (asked && defaultText) limits.push(`${defaultText} if not given`);
    const required = asked && Boolean(schema.required?.includes(key));
    const inner = field.type === "array" ? resolve(api, field.items) : field;
    const mark = field.type === "array" ? "[]." : ".";
    return [
      { name, type: typeOf(api, field), required, limits, description: field.description },
      ...fieldsOf(api, inner, side, name + mark, depth + 1),
    ];
  });
}

function typeOf(api, schema) {
  const orNull = schema.nullable ? " or null" : "";
  if (schema.enum) return schema.enum.join(", ") + orNull;
  if (schema.type === "array") return `list: ${typeOf(api, resolve(api, schema.items))}${orNull}`;
  if (schema.anyOf) return schema.anyOf.map((each) => typeOf(api, resolve(api, each))).join(" or ");
  if (schema.type === "object" && typeof schema.additionalProperties === "object" && !schema.properties) {
    return `object: name to ${typeOf(api, resolve(api, schema.additionalProperties))}${orNull}`;
  }
  return (TYPES[schema.type] ?? "any") + orNull;
}

/** What a value must keep to, as phrases. */
function limitsOf(api, schema) {
  const notes = [];
  const add = (least, most, unit) => {
    const phrase = range(least, most);
    if (phrase) notes.push(phrase + unit);
  };
  add(schema.minLength, schema.maxLength, " characters");
  add(schema.minimum, schema.maximum, "");
  if (schema.exclusiveMinimum !== undefined) notes.push(`more than ${number(schema.exclusiveMinimum)}`);
  if (schema.exclusiveMaximum !== undefined) notes.push(`less than ${number(schema.exclusiveMaximum)}`);
  add(schema.minItems, schema.maxItems, " items");
  if (schema.type === "array") {
    const inner = limitsOf(api, resolve(api, schema.items));
    if (inner.length) notes.push(`each ${inner.join(", ")}`);
  }
  return notes;
}

function range(least, most) {
  if (least === undefined && most === undefined) return "";
  if (most === undefined) return `at least ${number(least)}`;
  return least === undefined ? `at most ${number(most)}` : `${number(least)} to ${number(most)}`;
}

function number(value) {
  return value.toLocaleString("en");
}
