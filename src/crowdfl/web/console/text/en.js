// What the operator's console says, in English.

export default {};
