// What the requester's console says, in English.

export default {};
