// What the operator's console says, in German.

export default {};
