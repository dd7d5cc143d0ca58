// What the operator's console says, in Chinese.

export default {};
