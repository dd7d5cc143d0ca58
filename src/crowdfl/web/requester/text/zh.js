// What the requester's console says, in Chinese.

export default {};
