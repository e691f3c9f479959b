// Topic filters, as MQTT has them.

/** Why a filter cannot be used; "" if it can. */
export function filterFault(filter) {
  if (!filter) return "A topic filter needs at least one character.";
  const levels = filter.split("/");
  if (filter.startsWith("$geo/") || filter.startsWith("$share/")) {
    return "Give the inner filter: the map adds place and time itself.";
  }
  for (const [index, level] of levels.entries()) {
    if (level === "#" && index < levels.length - 1) return "# may only stand at the end.";
    if (level.length > 1 && /[#+]/.test(level)) return "# and + stand alone between slashes.";
  }
  return "";
}

/** A filter as part of a path; + stays readable. */
export function filterPath(filter) {
  return filter.split("/").map(encodeURIComponent).join("/").replaceAll("%2B", "+");
}

/** A condition's value inside a `$geo/` topic level. */
export function conditionText(text) {
  return text.replace(/[%/+#;]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
}
