// What the phone's page says, in Chinese.

export default {};
